//! What NBD clients are told of TLS, as the command line says it.

use crate::exit::Failure;
use lapstrake_export::tls::{Peers, ServerConfig, TlsOffer, server_config};
use std::path::PathBuf;
use std::sync::Arc;

/// The options.
#[derive(clap::Args)]
pub struct TlsArgs {
    /// Offer TLS with the certificates in this directory, which are called as nbdkit and QEMU call them: server-cert.pem
    /// and server-key.pem, and for verifying clients ca-cert.pem and, if there is one, ca-crl.pem. TCP clients must use
    /// it then, those on Unix sockets may
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Take no client over TLS without a certificate that ca-cert.pem vouches for
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
    /// Of these clients take only those whose certificate says this name: as the subject's common name, or as a DNS name;
    /// may be repeated
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    tls_allow: Vec<String>,
    /// Let TCP clients do without TLS, wherever they are: for networks in which everybody may read and write the array
    #[arg(long)]
    no_tls: bool,
}

/// See the module.
pub struct Tls {
    /// The server's certificates, and whom they let in.
    config: Option<Arc<ServerConfig>>,
    /// TCP clients may do without.
    is_needless: bool,
}

impl Tls {
    /// Reads the certificates.
    pub fn new(args: &TlsArgs) -> Result<Self, Failure> {
        let peers = match (&args.tls_allow[..], args.tls_verify_peer) {
            ([], false) => Peers::Anybody,
            ([], true) => Peers::Verified,
            (names, _) => Peers::Named(names.to_vec()),
        };
        let dir = args.tls_certificates.as_deref();
        let config = dir.map(|dir| server_config(dir, peers)).transpose().map_err(Failure::new)?;
        Ok(Self { config, is_needless: args.no_tls })
    }

    /// What a client of TCP, or of a Unix socket, is offered.
    pub fn offer(&self, is_tcp: bool) -> Option<TlsOffer> {
        let config = self.config.clone()?;
        Some(TlsOffer { config, is_required: is_tcp && !self.is_needless })
    }

    /// Whether clients from other machines may come, as far as this goes.
    pub fn lets_others_in(&self) -> bool {
        self.config.is_some() || self.is_needless
    }
}
