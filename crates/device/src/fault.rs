//! Faults injected beneath the engine: layers around a member that fail, tear, delay or end its I/O.
//!
//! A specification is a list of rules parted by `;`, a rule a list of words parted by `,`:
//!
//! | word | meaning | default |
//! |---|---|---|
//! | `member=N` | only the member at this place of its list, from 0; what is added or opened later is a list of its own | all |
//! | `op=read+write+flush+discard+zero` | only these operations | `read+write` |
//! | `range=OFFSET+LEN` | only operations that touch these bytes of the member (K, M, G, T) | all |
//! | `after=N` | let N such operations pass first | 0 |
//! | `count=N` | then act N times at most | without end |
//! | `errno=NAME` or a number | fail with it, nothing moved | |
//! | `torn=BYTES` | move that many bytes of it, then fail (`errno`, else `EIO`) | |
//! | `delay=TIME` | hold it back: `us`, `ms` or `s` | |
//! | `vanish` | from now on everything fails with `ENODEV` | |
//!
//! `member=2,op=write,after=100,errno=EIO` fails every write of the third member after its hundredth.
//! The rules of a member stack: each sees what those before it let pass, and delays add up. Operations
//! are counted where they are submitted, over all queues that share the member.

use crate::error::FaultError;
use crate::spec::parse_size;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The environment variable that [`Faults::from_env`] reads.
pub const ENV: &str = "LAPSTRAKE_FAULT";

/// What an operation does to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    Zero,
}

const KINDS: [(&str, Kind); 5] = [
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("flush", Kind::Flush),
    ("discard", Kind::Discard),
    ("zero", Kind::Zero),
];

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pass,
    Fail(i32),
    Torn { keep: u64, errno: i32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) delay: Option<Duration>,
    pub(crate) outcome: Outcome,
}

pub(crate) const PASS: Verdict = Verdict { delay: None, outcome: Outcome::Pass };

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rule {
    member: Option<usize>,
    kinds: u8,
    range: Option<(u64, u64)>,
    after: u64,
    count: Option<u64>,
    errno: Option<i32>,
    torn: Option<u64>,
    delay: Option<Duration>,
    vanish: bool,
}

/// A parsed specification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    rules: Vec<Rule>,
}

/// One rule around one member, with its counts.
#[derive(Debug)]
pub struct Layer {
    rule: Rule,
    seen: AtomicU64,
    gone: AtomicBool,
}

impl Faults {
    /// Parses a specification; see the module.
    ///
    /// # Errors
    /// [`FaultError`] names the rule and the word.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty());
        Ok(Self { rules: rules.map(parse_rule).collect::<Result<_, _>>()? })
    }

    /// The specification in `LAPSTRAKE_FAULT`; none if it is unset.
    ///
    /// # Errors
    /// As [`Faults::parse`].
    pub fn from_env() -> Result<Self, FaultError> {
        let text = std::env::var_os(ENV).unwrap_or_default();
        Self::parse(&text.to_string_lossy())
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Fresh layers for the member at `index` of the list, outermost first.
    pub fn layers(&self, index: usize) -> Vec<Arc<Layer>> {
        let rules = self.rules.iter().filter(|rule| rule.member.is_none_or(|m| m == index));
        rules
            .map(|rule| {
                let (seen, gone) = (AtomicU64::new(0), AtomicBool::new(false));
                Arc::new(Layer { rule: rule.clone(), seen, gone })
            })
            .collect()
    }
}

/// What the layers make of an operation on `len` bytes at `offset` (a flush: 0 at 0).
pub(crate) fn judge(layers: &[Arc<Layer>], kind: Kind, offset: u64, len: u64) -> Verdict {
    let mut delay = None;
    for layer in layers {
        let verdict = layer.judge(kind, offset, len);
        if let Some(more) = verdict.delay {
            delay = Some(delay.unwrap_or_default() + more);
        }
        if verdict.outcome != Outcome::Pass {
            return Verdict { delay, outcome: verdict.outcome };
        }
    }
    Verdict { delay, outcome: Outcome::Pass }
}

impl Layer {
    fn judge(&self, kind: Kind, offset: u64, len: u64) -> Verdict {
        let rule = &self.rule;
        let vanished = Verdict { delay: None, outcome: Outcome::Fail(libc::ENODEV) };
        if self.gone.load(Ordering::Relaxed) {
            return vanished;
        }
        let in_range =
            rule.range.is_none_or(|(start, size)| offset < start + size && start < offset + len);
        if rule.kinds & (1 << kind as u8) == 0 || !in_range {
            return PASS;
        }
        let nth = self.seen.fetch_add(1, Ordering::Relaxed);
        let acts = nth >= rule.after && rule.count.is_none_or(|count| nth - rule.after < count);
        if !acts {
            return PASS;
        }
        if rule.vanish {
            self.gone.store(true, Ordering::Relaxed);
            return vanished;
        }
        let outcome = match (rule.torn, rule.errno) {
            (Some(keep), errno) if keep < len => {
                Outcome::Torn { keep, errno: errno.unwrap_or(libc::EIO) }
            }
            (Some(_), _) | (None, None) => Outcome::Pass,
            (None, Some(errno)) => Outcome::Fail(errno),
        };
        Verdict { delay: rule.delay, outcome }
    }
}

fn parse_rule(text: &str) -> Result<Rule, FaultError> {
    let mut rule =
        Rule { kinds: 1 << Kind::Read as u8 | 1 << Kind::Write as u8, ..Rule::default() };
    for word in text.split(',').map(str::trim) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let bad = |key| FaultError::Value { rule: text.into(), key, value: value.into() };
        match key {
            "member" => rule.member = Some(value.parse().map_err(|_| bad("member"))?),
            "op" => rule.kinds = parse_kinds(value).ok_or_else(|| bad("op"))?,
            "range" => rule.range = Some(parse_range(value).ok_or_else(|| bad("range"))?),
            "after" => rule.after = value.parse().map_err(|_| bad("after"))?,
            "count" => rule.count = Some(value.parse().map_err(|_| bad("count"))?),
            "errno" => rule.errno = Some(parse_errno(value).ok_or_else(|| bad("errno"))?),
            "torn" => rule.torn = Some(parse_size(value).map_err(|_| bad("torn"))?),
            "delay" => rule.delay = Some(parse_time(value).ok_or_else(|| bad("delay"))?),
            "vanish" if value.is_empty() => rule.vanish = true,
            _ => return Err(FaultError::Word { rule: text.into(), word: word.into() }),
        }
    }
    let effect = rule.errno.is_some() || rule.torn.is_some() || rule.delay.is_some() || rule.vanish;
    if effect { Ok(rule) } else { Err(FaultError::NoEffect { rule: text.into() }) }
}

fn parse_kinds(text: &str) -> Option<u8> {
    text.split('+').try_fold(0, |kinds, name| {
        let kind = KINDS.iter().find(|(known, _)| *known == name)?.1;
        Some(kinds | 1 << kind as u8)
    })
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (offset, len) = text.split_once('+')?;
    let (offset, len) = (parse_size(offset).ok()?, parse_size(len).ok()?);
    offset.checked_add(len).map(|_| (offset, len))
}

fn parse_time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u32 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "us" => Some(Duration::from_micros(number.into())),
        "ms" => Some(Duration::from_millis(number.into())),
        "s" => Some(Duration::from_secs(number.into())),
        _ => None,
    }
}

/// Errors that storage gives; any other by its number.
fn parse_errno(text: &str) -> Option<i32> {
    let known = [
        ("EIO", libc::EIO),
        ("ENOSPC", libc::ENOSPC),
        ("ENODEV", libc::ENODEV),
        ("ENXIO", libc::ENXIO),
        ("ETIMEDOUT", libc::ETIMEDOUT),
        ("EREMOTEIO", libc::EREMOTEIO),
        ("ENODATA", libc::ENODATA),
        ("EILSEQ", libc::EILSEQ),
        ("EROFS", libc::EROFS),
        ("ENOLINK", libc::ENOLINK),
        ("ENOMEM", libc::ENOMEM),
        ("EBADE", libc::EBADE),
    ];
    let named = known.iter().find(|(name, _)| *name == text).map(|&(_, number)| number);
    named.or_else(|| text.parse().ok().filter(|number| (1..4096).contains(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(spec: &str, ops: &[(Kind, u64, u64)]) -> Vec<Outcome> {
        let layers = Faults::parse(spec).unwrap().layers(0);
        ops.iter().map(|&(kind, offset, len)| judge(&layers, kind, offset, len).outcome).collect()
    }

    #[test]
    fn counts_apply_to_matching_operations_only() {
        let write = (Kind::Write, 0, 512);
        let ops = [write, (Kind::Read, 0, 512), write, write, write];
        let eio = Outcome::Fail(libc::EIO);
        let pass = Outcome::Pass;
        let got = outcomes("op=write,after=1,count=2,errno=EIO", &ops);
        assert_eq!(got, [pass, pass, eio, eio, pass]);
    }

    #[test]
    fn ranges_match_by_overlap() {
        let ops = [(Kind::Read, 0, 4096), (Kind::Read, 4096, 4096), (Kind::Read, 8192, 512)];
        let got = outcomes("range=4K+4K,errno=ENODATA", &ops);
        assert_eq!(got, [Outcome::Pass, Outcome::Fail(libc::ENODATA), Outcome::Pass]);
    }

    #[test]
    fn a_vanished_member_answers_nothing_any_more() {
        let ops =
            [(Kind::Read, 0, 512), (Kind::Flush, 0, 0), (Kind::Write, 0, 512), (Kind::Flush, 0, 0)];
        let gone = Outcome::Fail(libc::ENODEV);
        let got = outcomes("op=write,vanish", &ops);
        assert_eq!(got, [Outcome::Pass, Outcome::Pass, gone, gone]);
    }

    #[test]
    fn layers_stack_and_members_are_told_apart() {
        let faults =
            Faults::parse("delay=2ms; member=1,delay=500us; member=1,op=write,torn=512").unwrap();
        assert_eq!(faults.layers(0).len(), 1);
        let verdict = judge(&faults.layers(1), Kind::Write, 0, 4096);
        assert_eq!(verdict.delay, Some(Duration::from_micros(2500)));
        assert_eq!(verdict.outcome, Outcome::Torn { keep: 512, errno: libc::EIO });
    }

    #[test]
    fn faulty_specs_are_named() {
        let fault = |text| Faults::parse(text).unwrap_err();
        assert!(matches!(fault("member=2"), FaultError::NoEffect { .. }));
        assert!(matches!(fault("op=scribble,vanish"), FaultError::Value { key: "op", .. }));
        assert!(matches!(fault("errno=EWHAT"), FaultError::Value { key: "errno", .. }));
        assert!(matches!(fault("delay=5"), FaultError::Value { key: "delay", .. }));
        assert!(matches!(fault("explode"), FaultError::Word { .. }));
        assert!(Faults::parse(" ; ").unwrap().is_empty());
    }
}
