//! A client's handshake, from the greeting to the choice of an export: framing of options, limits, TLS.
//!
//! Options about the connection are answered here. One about exports becomes a [`Step::Question`], which whoever knows
//! the exports answers: a [`super::Connection`] from its list (`Handshake::answer`), a gateway with what the export's own
//! server says ([`Handshake::pass_on`]).
//!
//! Invariants:
//! - while output is unsent no input is taken: a client that floods options keeps one reply in memory, not many;
//! - while a question waits for its answer none is taken either, so that replies keep the order of options.

use super::export::Exports;
use super::options::{self, Negotiated, Replies, Screened};
use super::wire::{self, Header, Reader, handshake_flag, opt, rep};
use super::{Security, Violation};

/// What the server offers, and all that the client may set.
const FLAGS: u16 = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
/// Longest option data that is kept, in bytes: three longest strings and change.
const OPTION_KEPT_MAX: u32 = 16 << 10;
/// Longest option data that is skipped rather than answered by hanging up, in bytes.
const OPTION_SKIPPED_MAX: u32 = 64 << 10;
/// Options that a client may send, beside four for each export (it may ask about all of them).
const OPTIONS_MAX: u32 = 64;

/// What the input brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An option about exports waits for its answer.
    Question,
    /// All that goes either way from here on is encrypted, once the output that is there is sent.
    StartTls,
    /// The client leaves in good order.
    Disconnect,
    /// The client broke the protocol.
    Violation(Violation),
}

/// See the module.
pub struct Handshake {
    phase: Phase,
    header: Header<{ wire::OPTION_HEADER_LEN }>,
    option_data: Vec<u8>,
    options_left: u32,
    negotiated: Negotiated,
    out: Vec<u8>,
    /// So many bytes of the output are gone.
    out_sent: usize,
    shutdown: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    OptionHeader,
    OptionData {
        option: u32,
        len: u32,
    },
    OptionSkip {
        option: u32,
        remaining: u32,
    },
    /// The option about exports whose data is kept waits for its answer.
    Asked {
        option: u32,
    },
    /// The client has left, was cut off, or has its export.
    Over,
}

/// How far a step came.
enum Progress {
    Again,
    Emit(Step),
    /// Needs more input.
    Starved,
}

impl Handshake {
    /// Of a connection just accepted, to a server of so many exports. The greeting is queued for output.
    #[must_use]
    pub fn new(exports: usize) -> Self {
        let per_export = u32::try_from(exports).unwrap_or(u32::MAX).saturating_mul(4);
        Self {
            phase: Phase::ClientFlags,
            header: Header::new(),
            option_data: Vec::new(),
            options_left: OPTIONS_MAX.saturating_add(per_export),
            negotiated: Negotiated::default(),
            out: greeting(),
            out_sent: 0,
            shutdown: false,
        }
    }

    /// The same with TLS, which the driver carries out.
    #[must_use]
    pub fn with_security(mut self, security: Security) -> Self {
        self.negotiated.security = security;
        self
    }

    /// What is to be sent.
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.out[self.out_sent..]
    }

    /// Notes that of `count` bytes the first ones of the output are sent; gives back how many are others'.
    pub fn sent(&mut self, count: usize) -> usize {
        let own = count.min(self.out.len() - self.out_sent);
        self.out_sent += own;
        if self.out_sent == self.out.len() {
            self.out = Vec::new();
            self.out_sent = 0;
        }
        count - own
    }

    /// Takes bytes off the front of `input` until something arises or nothing is left. What stays in `input` must be
    /// passed again.
    pub fn receive(&mut self, input: &mut &[u8]) -> Option<Step> {
        loop {
            if !self.out.is_empty() {
                return None;
            }
            let progress = match self.phase {
                Phase::ClientFlags => self.client_flags(input),
                Phase::OptionHeader => self.option_header(input),
                Phase::OptionData { option, len } => self.option_data(input, option, len),
                Phase::OptionSkip { option, remaining } => {
                    self.option_skip(input, option, remaining)
                }
                Phase::Asked { .. } | Phase::Over => Progress::Starved,
            };
            match progress {
                Progress::Again => {}
                Progress::Emit(step) => return Some(step),
                Progress::Starved => return None,
            }
        }
    }

    /// The option that waits for its answer, and its data.
    ///
    /// # Panics
    /// If none does: a bug of the driver. So do all that answer it.
    #[must_use]
    pub fn question(&self) -> (u32, &[u8]) {
        let Phase::Asked { option } = self.phase else { panic!("no question was asked") };
        (option, &self.option_data)
    }

    /// The export that the question names, as it does; none if its data have no name where one belongs.
    #[must_use]
    pub fn name(&self) -> Option<&[u8]> {
        options::name_in(self.question())
    }

    /// Answers the question from a list of exports, and gives back the one that was chosen, if one was. The handshake is
    /// over then, and where there is an error.
    ///
    /// # Errors
    /// What was asked for cannot be had, and there is no other way to say so than to hang up.
    pub(crate) fn answer(&mut self, exports: &Exports) -> Result<Option<usize>, Violation> {
        let (data, option) = self.take_question();
        let Self { negotiated, out, .. } = self;
        let answered = options::answer(negotiated, exports, (option, &data), out);
        if answered != Ok(None) {
            self.phase = Phase::Over;
        }
        answered
    }

    /// Answers the question with what somebody else has answered, reply for reply.
    pub fn pass_on(&mut self, replies: &[u8]) {
        self.take_question();
        self.out.extend_from_slice(replies);
    }

    /// Answers the question, which was for a list, with others' parts of it.
    pub fn list(&mut self, entries: &[u8]) {
        let (_, option) = self.take_question();
        self.out.extend_from_slice(entries);
        Replies { option, out: &mut self.out }.ack();
    }

    /// Answers the question: it makes no sense, or there is no such export. The name alone can be refused only by hanging
    /// up.
    ///
    /// # Errors
    /// The connection is to be hung up on.
    pub fn refuse(&mut self, why: &str) -> Result<(), Violation> {
        let is_named = self.name().is_some();
        let (_, option) = self.take_question();
        if option == opt::EXPORT_NAME {
            self.phase = Phase::Over;
            return Err(Violation::UnknownExport);
        }
        let mut reply = Replies { option, out: &mut self.out };
        if is_named {
            reply.error(rep::ERR_UNKNOWN, why)
        } else {
            reply.invalid()
        }
        Ok(())
    }

    fn take_question(&mut self) -> (Vec<u8>, u32) {
        let (option, _) = self.question();
        self.phase = Phase::OptionHeader;
        (std::mem::take(&mut self.option_data), option)
    }

    /// Structured replies were agreed on.
    #[must_use]
    pub fn is_structured(&self) -> bool {
        self.negotiated.structured
    }

    /// The client does without the zeroes that follow the answer to a name alone.
    #[must_use]
    pub fn does_without_zeroes(&self) -> bool {
        self.negotiated.no_zeroes
    }

    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// The client closed its end: at the edge of a message it has left, within one it is cut off.
    pub fn handle_eof(&mut self) -> Option<Step> {
        let is_mid_message = self.is_mid_message();
        let was = std::mem::replace(&mut self.phase, Phase::Over);
        (was != Phase::Over).then_some(match is_mid_message {
            true => Step::Violation(Violation::Truncated),
            false => Step::Disconnect,
        })
    }

    /// Whether the client has begun a message and owes the rest.
    #[must_use]
    pub fn is_mid_message(&self) -> bool {
        match self.phase {
            Phase::ClientFlags | Phase::OptionHeader => self.header.len() != 0,
            Phase::OptionData { .. } | Phase::OptionSkip { .. } => true,
            Phase::Asked { .. } | Phase::Over => false,
        }
    }

    /// From now on options are refused with `NBD_REP_ERR_SHUTDOWN`.
    pub(crate) fn begin_shutdown(&mut self) {
        self.shutdown = true;
    }

    fn cut(&mut self, violation: Violation) -> Progress {
        self.phase = Phase::Over;
        Progress::Emit(Step::Violation(violation))
    }

    fn client_flags(&mut self, input: &mut &[u8]) -> Progress {
        let Some(bytes) = self.header.gather::<{ wire::CLIENT_FLAGS_LEN }>(input) else {
            return Progress::Starved;
        };
        self.header.clear();
        let flags = u32::from_be_bytes(bytes);
        if flags & !u32::from(FLAGS) != 0 {
            return self.cut(Violation::ClientFlags { found: flags });
        }
        self.negotiated.no_zeroes = flags & u32::from(handshake_flag::NO_ZEROES) != 0;
        self.phase = Phase::OptionHeader;
        Progress::Again
    }

    fn option_header(&mut self, input: &mut &[u8]) -> Progress {
        let Some(bytes) = self.header.gather::<{ wire::OPTION_HEADER_LEN }>(input) else {
            return Progress::Starved;
        };
        self.header.clear();
        let mut reader = Reader(&bytes);
        let (Some(magic), Some(option), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            unreachable!("16 bytes hold the three fields");
        };
        if magic != wire::OPTION_MAGIC {
            return self.cut(Violation::OptionMagic { found: magic });
        }
        let Some(left) = self.options_left.checked_sub(1) else {
            return self.cut(Violation::TooManyOptions);
        };
        self.options_left = left;
        self.phase = match len {
            0..=OPTION_KEPT_MAX => Phase::OptionData { option, len },
            // An export's name can be refused only by hanging up.
            ..=OPTION_SKIPPED_MAX if option != opt::EXPORT_NAME => {
                Phase::OptionSkip { option, remaining: len }
            }
            _ => return self.cut(Violation::OptionTooLong { option, len }),
        };
        Progress::Again
    }

    fn option_data(&mut self, input: &mut &[u8], option: u32, len: u32) -> Progress {
        let count = (len as usize - self.option_data.len()).min(input.len());
        let (taken, rest) = input.split_at(count);
        self.option_data.extend_from_slice(taken);
        *input = rest;
        if self.option_data.len() < len as usize {
            return Progress::Starved;
        }
        let data = std::mem::take(&mut self.option_data);
        self.phase = Phase::OptionHeader;
        let Self { negotiated, shutdown, out, .. } = self;
        match options::screen(negotiated, *shutdown, (option, &data), out) {
            Screened::Haggle => Progress::Again,
            Screened::Question => {
                self.option_data = data;
                self.phase = Phase::Asked { option };
                Progress::Emit(Step::Question)
            }
            Screened::StartTls => Progress::Emit(Step::StartTls),
            Screened::Abort => {
                self.phase = Phase::Over;
                Progress::Emit(Step::Disconnect)
            }
            Screened::Cut(violation) => self.cut(violation),
        }
    }

    fn option_skip(&mut self, input: &mut &[u8], option: u32, remaining: u32) -> Progress {
        match wire::skip(input, remaining) {
            0 => {
                let text = "option data is too long";
                Replies { option, out: &mut self.out }.error(rep::ERR_TOO_BIG, text);
                self.phase = Phase::OptionHeader;
                Progress::Again
            }
            remaining => {
                self.phase = Phase::OptionSkip { option, remaining };
                Progress::Starved
            }
        }
    }
}

/// The server's first words: magics, and fixed newstyle without the zeroes.
fn greeting() -> Vec<u8> {
    let mut out = Vec::with_capacity(wire::GREETING_LEN);
    out.extend_from_slice(&wire::INIT_MAGIC.to_be_bytes());
    out.extend_from_slice(&wire::OPTION_MAGIC.to_be_bytes());
    out.extend_from_slice(&FLAGS.to_be_bytes());
    out
}
