//! What every sector of the array may show.
//!
//! A sector's history is the list of writes to it since it was last certain, in the order in
//! which its shard got them. Invariants held against every read and every cut:
//!
//! - a read shows the last write that was answered before the read came, or a later one;
//! - after a power cut a sector shows its last durable write, or a later one. Durable is a write
//!   that was answered before the shard got a flush that was answered, and a FUA write that was
//!   answered;
//! - what a sector shows first after a cut, it goes on to show until it is written.
//!
//! Sectors are told apart by their bytes: 64 times one word, which names the write and the
//! sector. XOR and multiplication keep that form, so a sector of another is torn within itself.

use crate::disk::SECTOR;

/// The word that fills sector `sector` in write `stamp`; write 0 is zeros.
pub(crate) fn word(stamp: u32, sector: u64) -> u64 {
    if stamp == 0 { 0 } else { u64::from(stamp) << 32 | sector }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Is(u64),
    /// One of these, not known which: what a cut left.
    OneOf(Vec<u64>),
    /// Discarded, or in a write hole.
    Any,
}

#[derive(Clone, Debug)]
struct Version {
    value: Value,
    /// The part of a request that writes it.
    part: u64,
    /// When it was answered, in answers.
    answered: Option<u64>,
    fua: bool,
}

#[derive(Clone, Debug)]
struct History {
    /// The first one is what was there; never empty.
    versions: Vec<Version>,
    /// The last one that was answered.
    floor: usize,
}

/// A read on its way: what each of its sectors had to show at least when it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floors(Vec<u32>);

/// What a write leaves in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    Stamp(u32),
    Anything,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    sectors: Vec<History>,
    answers: u64,
    /// Answers up to here are durable.
    durable: u64,
}

impl Oracle {
    /// An array full of zeros.
    pub(crate) fn new(sectors: u64) -> Self {
        let history = History { versions: vec![settled(Value::Is(0))], floor: 0 };
        Self { sectors: vec![history; sectors as usize], answers: 0, durable: 0 }
    }

    /// An array of which nothing is known.
    pub(crate) fn unknown(sectors: u64) -> Self {
        let mut this = Self::new(sectors);
        (0..sectors).for_each(|sector| this.forget(sector));
        this
    }

    /// The array has so many sectors now; what comes to it is nobody's.
    pub(crate) fn grow(&mut self, sectors: u64) {
        let history = History { versions: vec![settled(Value::Any)], floor: 0 };
        self.sectors.resize((sectors as usize).max(self.sectors.len()), history);
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// A shard gets a write.
    pub(crate) fn write_comes(&mut self, part: u64, start: u64, len: u64, leaves: Leaves) {
        for sector in start..start + len {
            let value = match leaves {
                Leaves::Stamp(stamp) => Value::Is(word(stamp, sector)),
                Leaves::Anything => Value::Any,
            };
            let version = Version { value, part, answered: None, fua: false };
            self.sectors[sector as usize].versions.push(version);
        }
    }

    /// A shard answers a write well.
    pub(crate) fn write_answered(
        &mut self,
        part: u64,
        start: u64,
        len: u64,
        fua: bool,
    ) -> Result<(), String> {
        self.answers += 1;
        for sector in start..start + len {
            let history = &mut self.sectors[sector as usize];
            let at = history.versions.iter().rposition(|version| version.part == part);
            let at = at.ok_or_else(|| format!("sector {sector}: an unknown write was answered"))?;
            if at < history.floor {
                return Err(format!("sector {sector}: overlapping writes ended out of order"));
            }
            history.floor = at;
            history.versions[at].answered = Some(self.answers);
            history.versions[at].fua = fua;
        }
        Ok(())
    }

    /// A shard gets a flush: names what that covers.
    pub(crate) fn flush_comes(&self) -> u64 {
        self.answers
    }

    pub(crate) fn flush_answered(&mut self, covers: u64) {
        self.durable = self.durable.max(covers);
    }

    /// A shard gets a read.
    pub(crate) fn read_comes(&self, start: u64, len: u64) -> Floors {
        let range = start as usize..(start + len) as usize;
        Floors(self.sectors[range].iter().map(|history| history.floor as u32).collect())
    }

    /// A shard answers a read with these bytes.
    pub(crate) fn read_answered(
        &mut self,
        start: u64,
        floors: &Floors,
        bytes: &[u8],
    ) -> Result<(), String> {
        for ((sector, bytes), &floor) in (start..).zip(bytes.chunks(SECTOR)).zip(&floors.0) {
            let history = &mut self.sectors[sector as usize];
            let allowed = &mut history.versions[floor as usize..];
            if allowed.iter().any(|version| version.value == Value::Any) {
                continue;
            }
            let found = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            if bytes.chunks(8).any(|chunk| chunk != &bytes[..8]) {
                return Err(format!("sector {sector} is torn within itself"));
            }
            let is_later = allowed.iter().any(|version| version.value == Value::Is(found));
            match &mut allowed[0].value {
                _ if is_later => {}
                Value::OneOf(values) if values.contains(&found) => {
                    allowed[0].value = Value::Is(found);
                }
                _ => {
                    let allowed: Vec<_> = allowed.iter().map(|v| v.value.to_string()).collect();
                    return Err(format!(
                        "sector {sector} shows {}, allowed: {}",
                        name(found),
                        allowed.join(", ")
                    ));
                }
            }
        }
        Ok(())
    }

    /// The array was stopped cleanly: all that was answered is durable.
    pub(crate) fn stopped(&mut self) {
        self.durable = self.answers;
    }

    /// The power was cut. Gives for each sector whether a write to it was not durable.
    pub(crate) fn cut(&mut self) -> Vec<bool> {
        let durable = self.durable;
        let one = |history: &mut History| {
            let is_durable = |version: &Version| {
                version.fua || version.answered.is_some_and(|answer| answer <= durable)
            };
            let at = history.versions.iter().rposition(is_durable).expect("the first one is");
            let in_doubt = at + 1 < history.versions.len();
            let value = join(history.versions.drain(at..).map(|version| version.value));
            *history = History { versions: vec![settled(value)], floor: 0 };
            in_doubt
        };
        self.sectors.iter_mut().map(one).collect()
    }

    /// The sector fell into a write hole.
    pub(crate) fn forget(&mut self, sector: u64) {
        self.sectors[sector as usize] = History { versions: vec![settled(Value::Any)], floor: 0 };
    }

    /// Whether copies of the sector may differ for good: it was discarded.
    pub(crate) fn may_be_anything(&self, sector: u64) -> bool {
        self.sectors[sector as usize].versions.iter().any(|version| version.value == Value::Any)
    }
}

fn settled(value: Value) -> Version {
    Version { value, part: u64::MAX, answered: Some(0), fua: false }
}

fn join(values: impl Iterator<Item = Value>) -> Value {
    let mut all = Vec::new();
    for value in values {
        match value {
            Value::Is(word) => all.push(word),
            Value::OneOf(words) => all.extend(words),
            Value::Any => return Value::Any,
        }
    }
    all.sort_unstable();
    all.dedup();
    if let [only] = all[..] { Value::Is(only) } else { Value::OneOf(all) }
}

fn name(word: u64) -> String {
    if word == 0 { "zeros".into() } else { format!("write {} of {}", word >> 32, word as u32) }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Is(word) => f.write_str(&name(*word)),
            Self::OneOf(words) => {
                let words: Vec<_> = words.iter().map(|&word| name(word)).collect();
                write!(f, "({})", words.join(" or "))
            }
            Self::Any => f.write_str("anything"),
        }
    }
}
