//! Where NBD is to be served, as users write it: `unix:PATH`, `HOST:PORT`, or an NBD URI as clients take it.

use crate::exit::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// NBD's own port, which a URI need not say.
const PORT: u16 = 10809;
const FORMS: &str =
    "say unix:PATH, HOST:PORT, [ADDRESS]:PORT, nbd://HOST:PORT or nbd+unix:///?socket=PATH";

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A Unix socket.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Place {
    /// Whether both cannot be had. Of port 0 there are as many as one likes.
    pub fn is_that_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix(one), Self::Unix(other)) => {
                std::path::absolute(one).ok() == std::path::absolute(other).ok()
            }
            (Self::Tcp(one), Self::Tcp(other)) => one == other && !one.ends_with(":0"),
            _ => false,
        }
    }
}

/// A place, and the export's name if a URI said one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub place: Place,
    /// What clients are to ask for; none: what the array is called.
    pub export: Option<String>,
}

impl Wanted {
    /// Reads any form; a path need not be UTF-8.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| Self::parse(&text))
    }

    fn parse(text: &OsStr) -> Result<Self, String> {
        if let Some(path) = text.as_bytes().strip_prefix(b"unix:").filter(|path| !path.is_empty()) {
            return unix(path);
        }
        let Some(text) = text.to_str() else { return Err(FORMS.into()) };
        match text.split_once("://") {
            Some(("nbd+unix", rest)) => unix_uri(rest),
            Some(("nbd" | "tcp", rest)) => tcp_uri(rest),
            Some((scheme @ ("nbds" | "nbds+unix"), rest)) => Err(format!(
                "TLS comes with --tls-certificates DIR; the place is {}://{rest}",
                scheme.replacen("nbds", "nbd", 1)
            )),
            Some(_) => Err(FORMS.into()),
            None => tcp(text.strip_prefix("tcp:").unwrap_or(text)).map(at),
        }
    }
}

/// All that are wanted, each of which can be had once.
pub fn places(wanted: &[Wanted]) -> Result<Vec<Place>, Failure> {
    let places: Vec<Place> = wanted.iter().map(|wanted| wanted.place.clone()).collect();
    let is_again =
        |(nth, place): &(usize, &Place)| places[..*nth].iter().any(|one| one.is_that_of(place));
    match places.iter().enumerate().find(is_again) {
        Some((_, place)) => Err(Failure::usage(format!("--nbd {place}: given twice"))),
        None => Ok(places),
    }
}

fn at(place: Place) -> Wanted {
    Wanted { place, export: None }
}

fn unix(path: &[u8]) -> Result<Wanted, String> {
    match path.strip_prefix(b"//") {
        // unix:///tmp/x is the path /tmp/x.
        Some(rest) if rest.starts_with(b"/") => Ok(at(Place::Unix(OsStr::from_bytes(rest).into()))),
        Some(rest) if !rest.is_empty() => {
            Err(format!("did you mean unix:{}?", String::from_utf8_lossy(rest)))
        }
        _ => Ok(at(Place::Unix(OsStr::from_bytes(path).into()))),
    }
}

/// What is behind `nbd+unix://`.
fn unix_uri(rest: &str) -> Result<Wanted, String> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
    let Some(socket) = socket.filter(|socket| !socket.is_empty()) else {
        return Err("the socket is missing: say nbd+unix:///?socket=PATH or unix:PATH".into());
    };
    let Some(export) = path.strip_prefix('/') else {
        return Err(format!(
            "a Unix socket has no host: did you mean nbd+unix:///?socket={socket}?"
        ));
    };
    Ok(Wanted { place: Place::Unix(unescaped(socket).into()), export: export_name(export)? })
}

/// What is behind `nbd://` or `tcp://`.
fn tcp_uri(rest: &str) -> Result<Wanted, String> {
    let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let place = if has_port { tcp(host) } else { tcp(&format!("{host}:{PORT}")) };
    Ok(Wanted { place: place?, export: export_name(export)? })
}

fn export_name(escaped: &str) -> Result<Option<String>, String> {
    let name = unescaped(escaped).into_string();
    let name = name.map_err(|name| format!("{}: no name in UTF-8", name.display()))?;
    Ok(Some(name).filter(|name| !name.is_empty()))
}

fn tcp(text: &str) -> Result<Place, String> {
    let is_number = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_number(port) => {
            let port: u16 = port.parse().map_err(|_| "a port is at most 65535")?;
            Ok(Place::Tcp(format!("{host}:{port}")))
        }
        Some(("", port)) if is_number(port) => {
            Err(format!("did you mean 127.0.0.1:{port}? (0.0.0.0:{port} lets in other machines)"))
        }
        None if is_number(text) => {
            Err(format!("did you mean 127.0.0.1:{text}? (0.0.0.0:{text} lets in other machines)"))
        }
        None if text.contains('/') => Err(format!("did you mean unix:{text}?")),
        _ => Err(FORMS.into()),
    }
}

/// With %XX as bytes.
fn unescaped(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|_| first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Wanted, String> {
        Wanted::parse(OsStr::from_bytes(text))
    }

    #[test]
    fn places_are_sockets_or_ports() {
        let place = |text: &[u8]| parse(text).map(|wanted| wanted.place);
        let unix = |path: &str| Ok(Place::Unix(path.into()));
        let tcp = |address: &str| Ok(Place::Tcp(address.into()));
        assert_eq!(place(b"unix:/tmp/x:1"), unix("/tmp/x:1"));
        assert_eq!(place(b"unix:///tmp/x"), unix("/tmp/x"));
        let odd = OsStr::from_bytes(b"/tmp/\xe9");
        assert_eq!(place(b"unix:/tmp/\xe9"), Ok(Place::Unix(odd.into())));
        assert_eq!(place(b"localhost:10809"), tcp("localhost:10809"));
        assert_eq!(place(b"tcp:[::1]:0"), tcp("[::1]:0"));
        assert_eq!(place(b"nbd://localhost"), tcp("localhost:10809"));
        assert_eq!(place(b"nbd://[::1]/"), tcp("[::1]:10809"));
        assert_eq!(place(b"tcp://[::1]:99"), tcp("[::1]:99"));
        assert_eq!(place(b"nbd+unix:///?socket=/tmp/a%20b"), unix("/tmp/a b"));
        assert_eq!(place(b"nbd+unix:///?socket=/tmp/%e9"), Ok(Place::Unix(odd.into())));
        for bad in ["", "unix:", ":10809", "localhost", "localhost:", "localhost:+80", "http://x:1"]
        {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse(b"\xe9:10809").is_err());
    }

    #[test]
    fn exports_are_named_by_uris() {
        let export = |text: &[u8]| parse(text).unwrap().export;
        assert_eq!(export(b"nbd://localhost:99/home%3Adata"), Some("home:data".into()));
        assert_eq!(export(b"nbd+unix:///data?socket=x"), Some("data".into()));
        assert_eq!(export(b"nbd://localhost/"), None);
        assert_eq!(export(b"unix:data"), None);
    }

    #[test]
    fn what_is_nearly_a_place_is_answered_with_one() {
        for (given, told) in [
            ("localhost:65536", "at most 65535"),
            ("/tmp/x.sock", "did you mean unix:/tmp/x.sock?"),
            ("unix://x.sock", "did you mean unix:x.sock?"),
            ("10809", "did you mean 127.0.0.1:10809?"),
            (":10809", "did you mean 127.0.0.1:10809?"),
            ("nbds://localhost", "the place is nbd://localhost"),
            ("nbd+unix:///data", "the socket is missing"),
            ("nbd+unix://data?socket=x", "did you mean nbd+unix:///?socket=x?"),
        ] {
            let refused = parse(given.as_bytes()).unwrap_err();
            assert!(refused.contains(told), "{given}: {refused}");
        }
    }
}
