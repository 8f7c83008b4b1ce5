//! Option haggling: one option in, its replies out.
//!
//! [`screen`] answers what is about the connection; what is about exports is left to [`answer`], a function of the
//! option, what was negotiated before, and the exports. They hold no
//! I/O state: how options are framed, and what happens to oversize ones, is the handshake's.
//! What we do not know gets `NBD_REP_ERR_UNSUP`, among it `NBD_OPT_EXTENDED_HEADERS`. While TLS is
//! required and not in use there is nothing but `NBD_OPT_STARTTLS` and `NBD_OPT_ABORT`.

use super::export::{ExportInfo, Exports};
use super::wire::{self, Reader, info, opt, rep};
use super::{Security, Violation};

/// What the options so far have settled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Negotiated {
    /// The client does without the 124 zero bytes after `NBD_OPT_EXPORT_NAME`.
    pub(crate) no_zeroes: bool,
    /// Structured replies are in use.
    pub(crate) structured: bool,
    /// The export for which `base:allocation` was selected.
    pub(crate) context: Option<usize>,
    /// The export whose block sizes the client has asked for, and so keeps to.
    pub(crate) sized: Option<usize>,
    pub(crate) security: Security,
}

/// What becomes of the connection after an option that was screened.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Screened {
    /// It is answered; the next may come.
    Haggle,
    /// It is about exports.
    Question,
    /// TLS begins.
    StartTls,
    /// The client wants to leave; the reply must still go out.
    Abort,
    /// The option cannot be answered.
    Cut(Violation),
}

/// Answers an option unless it is about exports: replies are appended to `out`.
pub(crate) fn screen(
    negotiated: &mut Negotiated,
    shutdown: bool,
    (option, data): (u32, &[u8]),
    out: &mut Vec<u8>,
) -> Screened {
    let mut reply = Replies { option, out };
    let is_barred = negotiated.security == Security::Required;
    match option {
        opt::ABORT => {
            reply.ack();
            return Screened::Abort;
        }
        opt::STARTTLS if !shutdown => return start_tls(negotiated, data, &mut reply),
        opt::EXPORT_NAME if is_barred => return Screened::Cut(Violation::TlsRequired),
        _ if is_barred && !shutdown => {
            reply.error(rep::ERR_TLS_REQD, "this server requires TLS");
        }
        opt::EXPORT_NAME if shutdown => return Screened::Cut(Violation::UnknownExport),
        _ if shutdown => reply.error(rep::ERR_SHUTDOWN, "the server is going down"),
        opt::LIST if !data.is_empty() => reply.invalid(),
        opt::EXPORT_NAME
        | opt::LIST
        | opt::INFO
        | opt::GO
        | opt::LIST_META_CONTEXT
        | opt::SET_META_CONTEXT => return Screened::Question,
        opt::STRUCTURED_REPLY if data.is_empty() => {
            negotiated.structured = true;
            reply.ack();
        }
        opt::STRUCTURED_REPLY => reply.invalid(),
        _ => reply.error(rep::ERR_UNSUP, "unknown option"),
    }
    Screened::Haggle
}

/// Answers an option that is about exports: replies are appended to `out`. Transmission begins if an export is given back;
/// a violation is all that can be said.
pub(crate) fn answer(
    negotiated: &mut Negotiated,
    exports: &Exports,
    (option, data): (u32, &[u8]),
    out: &mut Vec<u8>,
) -> Result<Option<usize>, Violation> {
    let mut reply = Replies { option, out };
    match option {
        opt::EXPORT_NAME => return export_name(negotiated, exports, data, out).map(Some),
        opt::LIST => list(exports, &mut reply),
        opt::INFO | opt::GO => return Ok(describe(negotiated, exports, data, &mut reply)),
        opt::SET_META_CONTEXT => {
            negotiated.context = None;
            contexts(negotiated, exports, data, &mut reply);
        }
        _ => contexts(negotiated, exports, data, &mut reply),
    }
    Ok(None)
}

/// The export that a question of this kind is about, if its data have a name where one belongs.
pub(crate) fn name_in((option, data): (u32, &[u8])) -> Option<&[u8]> {
    if option == opt::EXPORT_NAME { Some(data) } else { Reader(data).string() }
}

/// `NBD_OPT_STARTTLS`: what was agreed on before is forgotten, since anybody may have said it.
fn start_tls(negotiated: &mut Negotiated, data: &[u8], reply: &mut Replies) -> Screened {
    let no_zeroes = negotiated.no_zeroes;
    match negotiated.security {
        Security::Unavailable => reply.error(rep::ERR_UNSUP, "this server has no TLS"),
        _ if !data.is_empty() => reply.invalid(),
        Security::Secured => reply.error(rep::ERR_INVALID, "TLS is in use already"),
        Security::Offered | Security::Required => {
            let security = Security::Secured;
            *negotiated = Negotiated { no_zeroes, security, ..Negotiated::default() };
            reply.ack();
            return Screened::StartTls;
        }
    }
    Screened::Haggle
}

/// `NBD_OPT_EXPORT_NAME`: its only error is to hang up.
fn export_name(
    negotiated: &Negotiated,
    exports: &Exports,
    name: &[u8],
    out: &mut Vec<u8>,
) -> Result<usize, Violation> {
    let index = exports.find(name).ok_or(Violation::UnknownExport)?;
    let export = &exports.list()[index];
    out.extend_from_slice(&export.size.bytes().to_be_bytes());
    out.extend_from_slice(&export.flags(negotiated.structured).to_be_bytes());
    if !negotiated.no_zeroes {
        out.extend_from_slice(&[0; 124]);
    }
    Ok(index)
}

fn list(exports: &Exports, reply: &mut Replies) {
    for export in exports.list() {
        let name = export.name.as_bytes();
        let name_len = (name.len() as u32).to_be_bytes();
        reply.send(rep::SERVER, &[&name_len, name, export.description.as_bytes()]);
    }
    reply.ack();
}

/// `NBD_OPT_INFO` and `NBD_OPT_GO`; the latter gives back an export.
fn describe(
    negotiated: &mut Negotiated,
    exports: &Exports,
    data: &[u8],
    reply: &mut Replies,
) -> Option<usize> {
    let Some((name, wanted)) = parse_describe(data) else {
        reply.invalid();
        return None;
    };
    let Some(index) = exports.find(name) else {
        reply.unknown();
        return None;
    };
    if wanted & (1 << info::BLOCK_SIZE) != 0 {
        negotiated.sized = Some(index);
    }
    facts(&exports.list()[index], negotiated.structured, wanted, reply);
    reply.ack();
    (reply.option == opt::GO).then_some(index)
}

/// The name, and the facts asked for as a set of bits. What we do not know is passed over.
fn parse_describe(data: &[u8]) -> Option<(&[u8], u64)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let mut wanted = 0;
    for _ in 0..reader.u16()? {
        wanted |= 1u64.checked_shl(reader.u16()?.into()).unwrap_or(0);
    }
    reader.0.is_empty().then_some((name, wanted))
}

fn facts(export: &ExportInfo, structured: bool, wanted: u64, reply: &mut Replies) {
    let wants = |fact: u16| wanted & (1 << fact) != 0;
    let flags = export.flags(structured).to_be_bytes();
    let kind = u16::to_be_bytes;
    reply.send(rep::INFO, &[&kind(info::EXPORT), &export.size.bytes().to_be_bytes(), &flags]);
    if wants(info::NAME) {
        reply.send(rep::INFO, &[&kind(info::NAME), export.name.as_bytes()]);
    }
    if wants(info::DESCRIPTION) && !export.description.is_empty() {
        reply.send(rep::INFO, &[&kind(info::DESCRIPTION), export.description.as_bytes()]);
    }
    if wants(info::BLOCK_SIZE) {
        let sizes = [export.min_block, export.preferred_block, export.max_payload];
        let [min, preferred, max] = sizes.map(u32::to_be_bytes);
        reply.send(rep::INFO, &[&kind(info::BLOCK_SIZE), &min, &preferred, &max]);
    }
}

/// `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT`.
fn contexts(negotiated: &mut Negotiated, exports: &Exports, data: &[u8], reply: &mut Replies) {
    let set = reply.option == opt::SET_META_CONTEXT;
    if !negotiated.structured {
        return reply.error(rep::ERR_INVALID, "metadata contexts need structured replies");
    }
    let Some((name, matched)) = parse_contexts(data, set) else {
        return reply.invalid();
    };
    let Some(index) = exports.find(name) else {
        return reply.unknown();
    };
    if matched {
        // In a listing the number means nothing and should be zero.
        let id = if set { wire::BASE_ALLOCATION_ID } else { 0 };
        reply.send(rep::META_CONTEXT, &[&id.to_be_bytes(), wire::BASE_ALLOCATION.as_bytes()]);
        if set {
            negotiated.context = Some(index);
        }
    }
    reply.ack();
}

/// The export's name, and whether the queries ask for `base:allocation`. A listing may also ask
/// by the namespace alone, or with no query at all.
fn parse_contexts(data: &[u8], set: bool) -> Option<(&[u8], bool)> {
    let mut reader = Reader(data);
    let name = reader.string()?;
    let count = reader.u32()?;
    let mut matched = !set && count == 0;
    for _ in 0..count {
        let query = reader.string()?;
        matched |= query == wire::BASE_ALLOCATION.as_bytes() || (!set && query == b"base:");
    }
    reader.0.is_empty().then_some((name, matched))
}

/// Writes replies to one option.
pub(crate) struct Replies<'a> {
    pub(crate) option: u32,
    pub(crate) out: &'a mut Vec<u8>,
}

impl Replies<'_> {
    fn send(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.out.extend_from_slice(&wire::OPTION_REPLY_MAGIC.to_be_bytes());
        for word in [self.option, kind, len as u32] {
            self.out.extend_from_slice(&word.to_be_bytes());
        }
        for part in parts {
            self.out.extend_from_slice(part);
        }
    }

    pub(crate) fn ack(&mut self) {
        self.send(rep::ACK, &[]);
    }

    pub(crate) fn error(&mut self, kind: u32, text: &str) {
        self.send(kind, &[text.as_bytes()]);
    }

    pub(crate) fn invalid(&mut self) {
        self.error(rep::ERR_INVALID, "malformed option data");
    }

    pub(crate) fn unknown(&mut self) {
        self.error(rep::ERR_UNKNOWN, "no export has this name");
    }
}
