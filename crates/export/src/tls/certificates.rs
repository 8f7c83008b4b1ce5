//! Certificates of a server, as nbdkit and QEMU name their files, and the clients that they let in.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use webpki::EndEntityCert;

/// Those whose certificates are taken.
const CA: &str = "ca-cert.pem";
/// What they have taken back; need not be there.
const REVOKED: &str = "ca-crl.pem";
const CERTIFICATE: &str = "server-cert.pem";
const KEY: &str = "server-key.pem";
/// The DER of `id-at-commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];

/// Who may come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Whoever speaks TLS.
    Anybody,
    /// Who has a certificate of the authority's.
    Verified,
    /// Of these who is called so: by the subject's common name, or a DNS name beside it.
    Named(Vec<String>),
}

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read, or holds no PEM of its kind.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: pem::Error,
    },
    /// A certificate of the authority's is none.
    #[error("{}: {source}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Error,
    },
    /// The authority's certificates and lists do not do for verifying clients.
    #[error("{}: cannot verify clients: {source}", path.display())]
    Verifier {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        source: VerifierBuilderError,
    },
    /// The server's certificate and its key do not go together, or are of a kind that is not supported.
    #[error("{}: server-cert.pem and server-key.pem: {source}", path.display())]
    Pair {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        source: Error,
    },
}

/// What a server needs of a directory of certificates.
///
/// # Errors
/// A file that lacks, or is not as it should be.
pub fn server_config(dir: &Path, peers: Peers) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let versions = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of every version");
    let builder = match peers {
        Peers::Anybody => versions.with_no_client_auth(),
        Peers::Verified => versions.with_client_cert_verifier(verifier(dir, provider)?),
        Peers::Named(names) => {
            let inner = verifier(dir, provider)?;
            versions.with_client_cert_verifier(Arc::new(Named { inner, names }))
        }
    };
    let chain = certificates(&dir.join(CERTIFICATE))?;
    let path = dir.join(KEY);
    let key =
        PrivateKeyDer::from_pem_file(&path).map_err(|source| TlsError::File { path, source })?;
    let pair = |source| TlsError::Pair { path: dir.to_owned(), source };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    // Connections are long: nobody is to be let in by what was agreed on before.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |source| TlsError::File { path: path.to_owned(), source };
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(failed)?;
    if all.is_empty() { Err(failed(pem::Error::NoItemsFound)) } else { Ok(all) }
}

fn verifier(
    dir: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let path = dir.join(CA);
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&path)? {
        let failed = |source| TlsError::Authority { path: path.clone(), source };
        roots.add(certificate).map_err(failed)?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let path = dir.join(REVOKED);
    if path.exists() {
        let failed = |source| TlsError::File { path: path.clone(), source };
        let lists = CertificateRevocationListDer::pem_file_iter(&path).map_err(failed)?;
        let lists: Vec<_> = lists.collect::<Result<_, _>>().map_err(failed)?;
        builder = builder.with_crls(lists).allow_unknown_revocation_status();
    }
    builder.build().map_err(|source| TlsError::Verifier { path: dir.to_owned(), source })
}

/// Lets in whom another verifier does, if they are called so.
#[derive(Debug)]
struct Named {
    inner: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl Named {
    fn lets_in(&self, certificate: &CertificateDer<'_>) -> Result<bool, Error> {
        let certificate =
            EndEntityCert::try_from(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let is_meant = |name: &[u8]| self.names.iter().any(|one| one.as_bytes() == name);
        let by_dns = certificate.valid_dns_names().any(|name| is_meant(name.as_bytes()));
        Ok(by_dns || common_names(certificate.subject()).iter().any(|name| is_meant(name)))
    }
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(certificate, intermediates, now)?;
        if self.lets_in(certificate)? {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// The common names of a subject: the contents of an `RDNSequence` (RFC 5280, 4.1.2.4), which holds sets of pairs of
/// what a name is and the name.
fn common_names(mut subject: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let Some((0x31, mut set, rest)) = element(subject) {
        subject = rest;
        while let Some((0x30, pair, rest)) = element(set) {
            set = rest;
            let name = pair.strip_prefix(COMMON_NAME).and_then(element);
            found.extend(name.map(|(_, name, _)| name));
        }
    }
    found
}

/// The tag and the contents of the first element of DER, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // Names are shorter than 64 KiB.
        0x81 | 0x82 => {
            let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0, |len, &byte| len << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(len)?;
    Some((tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_names_are_found_among_others_and_nothing_in_a_torn_subject() {
        // C=DE, CN=backup, CN="a" of 200 letters.
        let country = [0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 6, 0x13, 2, b'D', b'E'];
        let short = [&[0x31, 15, 0x30, 13, 6, 3, 0x55, 4, 3, 0x0c, 6][..], b"backup"].concat();
        let long = [
            &[0x31, 0x81, 211, 0x30, 0x81, 208, 6, 3, 0x55, 4, 3, 0x0c, 0x81, 200][..],
            &[b'a'; 200],
        ]
        .concat();
        let subject = [&country[..], &short, &long].concat();
        assert_eq!(common_names(&subject), [&b"backup"[..], &[b'a'; 200]]);
        for len in 0..subject.len() {
            assert!(common_names(&subject[..len]).len() < 2, "{len}");
        }
        assert!(common_names(&[0x31, 0x84, 0xff, 0xff, 0xff, 0xff]).is_empty());
    }
}
