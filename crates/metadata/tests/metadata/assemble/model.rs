//! Superblocks in short words, and decisions in short words.

use lapstrake_geometry::{Layout, Level, Sector, Sectors, Slot};
use lapstrake_metadata::assemble::{
    Assembly, Candidate, Options, Reason, Refusal, Verdict, assemble,
};
use lapstrake_metadata::v1::{self, feature, role};
use lapstrake_metadata::{ByteOrder, MAGIC, Role, Superblock, Version, read_at, v090};

/// Size of every member's device.
pub const DEVICE: Sectors = Sectors(1 << 15);

/// An array that members are made of.
#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub version: Version,
    pub level: Level,
    pub raid_disks: u16,
    pub layout: Layout,
}

impl Array {
    pub fn new(version: Version, level: Level, raid_disks: u16) -> Self {
        Self { version, level, raid_disks, layout: Layout::default_for(level) }
    }

    fn chunk(&self) -> u32 {
        if self.level.is_striped() { 128 } else { 0 }
    }

    fn component(&self) -> u64 {
        if self.level.has_redundancy() { 16384 } else { 0 }
    }

    fn v1(&self, number: u32) -> Superblock {
        let mut dev_roles: Vec<u16> = (0..self.raid_disks).collect();
        dev_roles.resize(128, role::SPARE);
        let is_raid0 = self.level == Level::Raid0;
        Superblock::V1(v1::Superblock {
            magic: MAGIC,
            major_version: 1,
            feature_map: if is_raid0 { feature::RAID0_LAYOUT } else { 0 },
            pad0: 0,
            set_uuid: [7; 16],
            set_name: *b"nas:data\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ctime: 1_700_000_000,
            level: self.level.to_md(),
            layout: self.layout.to_md(),
            size: self.component(),
            chunksize: self.chunk(),
            raid_disks: self.raid_disks.into(),
            bitmap_offset: 0,
            new_level: 0,
            reshape_position: 0,
            delta_disks: 0,
            new_layout: 0,
            new_chunk: 0,
            new_offset: 0,
            data_offset: 2048,
            data_size: DEVICE.0 - 2048,
            super_offset: 8,
            recovery_offset: 0,
            dev_number: number,
            cnt_corrected_read: 0,
            device_uuid: [number as u8 + 1; 16],
            devflags: 0,
            bblog_shift: 0,
            bblog_size: 0,
            bblog_offset: 0,
            utime: 1_700_000_100,
            events: 0,
            resync_offset: v1::MAX_SECTOR,
            sb_csum: 0,
            max_dev: 128,
            logical_block_size: 0,
            pad3: [0; 28],
            minor_version: 2,
            dev_roles,
        })
    }

    fn v090(&self, number: u32) -> Superblock {
        let at = Version::V090.superblock(DEVICE).unwrap().0;
        let mut bytes = [0; 4096];
        for (offset, value) in [
            (0, MAGIC),
            (8, 90),
            (20, 0x0707_0707),
            (24, 1_700_000_000),
            (28, self.level.to_md() as u32),
            (32, (self.component() / 2) as u32),
            (40, self.raid_disks.into()),
            (132, v090::state::CLEAN),
            (256, self.layout.to_md()),
            (260, self.chunk() * 512),
        ] {
            bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        let sum = v090::checksum(&bytes, ByteOrder::Little);
        bytes[152..156].copy_from_slice(&sum.to_le_bytes());
        let mut sb = v090::Superblock::parse(&bytes, at).unwrap();
        sb.this_disk.number = number;
        for slot in 0..self.raid_disks.into() {
            let role = Role::Active(lapstrake_geometry::Slot(slot as u16));
            sb.set_role_of(slot, role);
        }
        if number >= self.raid_disks.into() {
            sb.set_role_of(number, Role::Spare);
        }
        Superblock::V090(sb)
    }

    /// A member's superblock, from a word: its events, then what is special, each with a letter
    /// before it: `d` dirty, `r100` recovered up to sector 100, `!1` slot 1 is called failed,
    /// `?1` slot 1 is called a spare, `x` itself failed, `#3` its device number (that of its
    /// place, if not said), `s` it is a spare, `J` the array has a journal, `j` it is that.
    pub fn member(&self, place: usize, word: &str) -> Superblock {
        let marks = |c: char| c.is_ascii_alphabetic() || "!?#".contains(c);
        let split = word.find(marks).unwrap_or(word.len());
        let (events, mut rest) = (word[..split].parse().expect(word), &word[split..]);
        let mut number = place as u32;
        let mut parts = Vec::new();
        while let Some(mark) = rest.chars().next() {
            let end = rest[1..].find(marks).map_or(rest.len(), |at| at + 1);
            let value = rest[1..end].parse::<u32>().ok();
            if mark == '#' {
                number = value.unwrap();
            } else {
                parts.push((mark, value));
            }
            rest = &rest[end..];
        }
        let mut sb =
            if self.version == Version::V090 { self.v090(number) } else { self.v1(number) };
        sb.set_events(events);
        for (mark, value) in parts {
            match mark {
                'd' => sb.set_clean(false),
                'r' => sb.set_recovery_offset(Some(Sector(value.unwrap().into()))),
                '!' => sb.set_role_of(value.unwrap(), Role::Faulty),
                '?' => sb.set_role_of(value.unwrap(), Role::Spare),
                'x' => sb.set_role_of(number, Role::Faulty),
                's' => sb.set_role_of(number, Role::Spare),
                'j' => sb.set_role_of(number, Role::Journal),
                'J' => match &mut sb {
                    Superblock::V1(sb) => sb.feature_map |= feature::JOURNAL,
                    Superblock::V090(_) => panic!("0.90 has no journal"),
                },
                _ => panic!("{word}"),
            }
        }
        reread(&sb)
    }

    /// Members by words; "-" is none. Ids are the words' places.
    pub fn members(&self, words: &str) -> Vec<(usize, Superblock)> {
        let words = words.split_whitespace().enumerate();
        words.filter(|(_, w)| *w != "-").map(|(i, word)| (i, self.member(i, word))).collect()
    }
}

/// The superblock as it comes back from a device.
pub fn reread(sb: &Superblock) -> Superblock {
    read_at(sb.version(), DEVICE, &sb.encode()).expect("a sound superblock")
}

pub fn decide(
    members: &[(usize, Superblock)],
    options: &Options,
) -> Result<Assembly, lapstrake_metadata::assemble::AssembleError> {
    let candidates: Vec<_> =
        members.iter().map(|(id, superblock)| Candidate { id: *id, superblock }).collect();
    let assembly = assemble(&candidates, options)?;
    check(&assembly, &candidates);
    Ok(assembly)
}

/// What holds for every decision.
fn check(assembly: &Assembly, candidates: &[Candidate<'_>]) {
    let Assembly { verdicts, members, recovering, replacements, spares, .. } = assembly;
    assert!(verdicts.iter().map(|(id, _)| *id).eq(candidates.iter().map(|c| c.id)));
    assert_eq!(members.len(), assembly.config.raid_disks as usize);
    let mut used = vec![];
    for (id, verdict) in verdicts {
        let places = members.iter().filter(|m| **m == Some(*id)).count()
            + recovering.iter().filter(|r| r.1 == *id).count()
            + replacements.iter().filter(|r| r.1 == *id).count()
            + spares.iter().filter(|s| *s == id).count()
            + usize::from(assembly.journal == Some(*id));
        match verdict {
            Verdict::Taken { slot, recovering: None } => {
                assert_eq!(members[slot.index()], Some(*id));
                used.push(*id);
            }
            Verdict::Taken { slot, recovering: Some(at) } => {
                // Where what it has may differ from the only other copy, it has nothing.
                let is_it = |r: &&(Slot, usize, Sector)| (r.0, r.1) == (*slot, *id) && r.2 <= *at;
                assert!(recovering.iter().any(|r| is_it(&r)));
                used.push(*id);
            }
            Verdict::Replacement { slot, recovering } => {
                let found = replacements.iter().find(|r| (r.0, r.1) == (*slot, *id));
                let is_anew = found.is_some_and(|r| r.2 == Some(Sector(0)));
                assert!(is_anew || found.is_some_and(|r| r.2 == *recovering));
            }
            Verdict::Spare => assert!(spares.contains(id)),
            Verdict::Journal => assert_eq!(assembly.journal, Some(*id)),
            Verdict::Left(_) => {}
        }
        assert_eq!(places, !matches!(verdict, Verdict::Left(_)) as usize, "{verdicts:?}");
    }
    let in_sync = members.iter().flatten().count();
    assert_eq!(assembly.degraded as usize, members.len() - in_sync);
    if assembly.start.is_ok() {
        let geometry = assembly.geometry.as_ref().expect("a geometry");
        assert!(geometry.survives(|slot| members[slot.index()].is_some()));
    } else {
        assert!(assembly.forced.is_empty() && assembly.rewrite.is_empty());
    }
    if !assembly.rewrite.is_empty() {
        check_rewrite(assembly, &used, candidates);
    }
}

/// What is rewritten assembles the same array, without force and in any order.
fn check_rewrite(assembly: &Assembly, used: &[usize], candidates: &[Candidate<'_>]) {
    let mut ids: Vec<_> = assembly.rewrite.iter().map(|(id, _)| *id).collect();
    ids.sort();
    let mut used = used.to_vec();
    used.sort();
    assert_eq!(ids, used, "all members or none");
    for reverse in [false, true] {
        let mut again: Vec<_> = assembly.rewrite.iter().map(|(id, sb)| (*id, reread(sb))).collect();
        let journal = candidates.iter().filter(|c| assembly.journal == Some(c.id));
        again.extend(journal.map(|c| (c.id, c.superblock.clone())));
        if reverse {
            again.reverse();
        }
        let run = Options { run: true, ..Options::default() };
        let next = decide(&again, &run).unwrap();
        assert_eq!(next.start, Ok(()), "{:?}", next.verdicts);
        assert_eq!(next.members, assembly.members);
        assert_eq!(next.events, assembly.events);
        assert_eq!(next.resync_from, assembly.resync_from);
    }
}

/// A candidate's verdict in a word: its slot, with `~` under recovery; `S` spare; or why not.
pub fn verdict_word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Taken { slot, recovering: None } => slot.0.to_string(),
        Verdict::Taken { slot, recovering: Some(_) } => format!("{}~", slot.0),
        Verdict::Replacement { slot, .. } => format!("{}R", slot.0),
        Verdict::Spare => "S".into(),
        Verdict::Journal => "J".into(),
        Verdict::Left(reason) => match reason {
            Reason::OtherArray { .. } => "other",
            Reason::Stale { .. } => "stale",
            Reason::CallsFailed { .. } => "split",
            Reason::CalledFailedBy { .. } => "failed",
            Reason::Unlisted { .. } => "unlisted",
            Reason::DuplicateOf { .. } => "twice",
            Reason::SlotTaken { .. } => "slot",
            Reason::NumberTaken { .. } => "number",
            Reason::JournalTaken { .. } => "second",
            Reason::NoJournalWanted => "unwanted",
            Reason::Faulty => "faulty",
            Reason::Disagrees { .. } => "differs",
            Reason::TooSmall { .. } => "small",
            Reason::Unsupported(_) => "unsupported",
            Reason::UnknownRole { .. } | Reason::NoSuchSlot { .. } => "role",
            Reason::BadBlockLog(_) => "log",
            other => panic!("{other:?}"),
        }
        .into(),
    }
}

pub fn start_word(start: &Result<(), Refusal>) -> &'static str {
    match start {
        Ok(()) => "ok",
        Err(Refusal::NotEnough { force_helps: true, .. }) => "few+",
        Err(Refusal::NotEnough { .. }) => "few",
        Err(Refusal::DirtyDegraded { .. }) => "dirty",
        Err(Refusal::NewlyDegraded { .. }) => "new",
        Err(Refusal::NoJournal) => "journal",
        Err(Refusal::Ambiguous { .. }) => "two",
        Err(Refusal::Split { .. }) => "halves",
        Err(other) => panic!("{other:?}"),
    }
}

/// "verdict verdict ...: start"; `J` is the journal, "f" after a verdict says forced.
pub fn words(assembly: &Assembly) -> String {
    let verdicts = assembly.verdicts.iter().map(|(id, verdict)| {
        let mark = if assembly.forced.contains(id) { "f" } else { "" };
        verdict_word(verdict) + mark
    });
    format!("{}: {}", verdicts.collect::<Vec<_>>().join(" "), start_word(&assembly.start))
}
