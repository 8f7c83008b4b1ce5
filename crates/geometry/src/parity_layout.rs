//! The layouts of RAID5 and RAID6: which member of a stripe holds P, Q and each data chunk.
//!
//! The rules themselves are in [`stripe`](crate::stripe); here are numbers and names. One
//! variant stands for one rule, so RAID5 and RAID6 share those with one number.

use crate::level::Level;

/// A rule of RAID5 or RAID6. "Left" moves P towards lower slots from stripe to stripe, "right"
/// towards higher ones; "symmetric" starts the data after the parity, "asymmetric" at slot 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParityLayout {
    /// `left-asymmetric`, 0.
    LeftAsymmetric,
    /// `right-asymmetric`, 1.
    RightAsymmetric,
    /// `left-symmetric`, 2: the default.
    LeftSymmetric,
    /// `right-symmetric`, 3.
    RightSymmetric,
    /// `parity-first`, 4: all parity on the lowest slots.
    ParityFirst,
    /// `parity-last`, 5: all parity on the highest slots.
    ParityLast,
    /// `ddf-zero-restart`, 8, RAID6 only.
    DdfZeroRestart,
    /// `ddf-N-restart`, 9, RAID6 only.
    DdfNRestart,
    /// `ddf-N-continue`, 10, RAID6 only.
    DdfNContinue,
    /// `left-asymmetric-6`, 16: RAID5's rule on all members but the last, which holds Q.
    LeftAsymmetric6,
    /// `right-asymmetric-6`, 17.
    RightAsymmetric6,
    /// `left-symmetric-6`, 18.
    LeftSymmetric6,
    /// `right-symmetric-6`, 19.
    RightSymmetric6,
    /// `parity-first-6`, 20.
    ParityFirst6,
}

use ParityLayout::*;

/// Layout, md's number, mdadm's first name and the short form that it also takes.
const TABLE: [(ParityLayout, u32, &str, &str); 14] = [
    (LeftAsymmetric, 0, "left-asymmetric", "la"),
    (RightAsymmetric, 1, "right-asymmetric", "ra"),
    (LeftSymmetric, 2, "left-symmetric", "ls"),
    (RightSymmetric, 3, "right-symmetric", "rs"),
    (ParityFirst, 4, "parity-first", ""),
    (ParityLast, 5, "parity-last", ""),
    (DdfZeroRestart, 8, "ddf-zero-restart", ""),
    (DdfNRestart, 9, "ddf-N-restart", ""),
    (DdfNContinue, 10, "ddf-N-continue", ""),
    (LeftAsymmetric6, 16, "left-asymmetric-6", ""),
    (RightAsymmetric6, 17, "right-asymmetric-6", ""),
    (LeftSymmetric6, 18, "left-symmetric-6", ""),
    (RightSymmetric6, 19, "right-symmetric-6", ""),
    (ParityFirst6, 20, "parity-first-6", ""),
];

impl ParityLayout {
    /// Every layout, in the order of md's numbers.
    pub fn all() -> impl Iterator<Item = ParityLayout> {
        TABLE.into_iter().map(|(layout, ..)| layout)
    }

    /// The layout with md's number `word`, if `level` (RAID5 or RAID6) has it.
    pub fn from_md(level: Level, word: u32) -> Option<ParityLayout> {
        let (layout, ..) = TABLE.into_iter().find(|(_, number, ..)| *number == word)?;
        layout.belongs_to(level).then_some(layout)
    }

    /// md's number.
    pub fn to_md(self) -> u32 {
        self.row().1
    }

    /// The layout of `level` that mdadm knows by `name`.
    ///
    /// For RAID5 the DDF names are synonyms of plain layouts; for RAID6 they are layouts of their
    /// own.
    pub fn from_name(level: Level, name: &str) -> Option<ParityLayout> {
        let layout = match (level, name) {
            (_, "default") => LeftSymmetric,
            (Level::Raid5, "ddf-zero-restart") => RightAsymmetric,
            (Level::Raid5, "ddf-N-restart") => LeftAsymmetric,
            (Level::Raid5, "ddf-N-continue") => LeftSymmetric,
            (Level::Raid6, "parity-last-6") => ParityLast,
            _ => {
                TABLE.into_iter().find(|row| !name.is_empty() && [row.2, row.3].contains(&name))?.0
            }
        };
        layout.belongs_to(level).then_some(layout)
    }

    /// mdadm's name.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The layout of a RAID6 that this one of a RAID5 becomes by a second parity on one member more.
    pub fn with_q_last(self) -> ParityLayout {
        match self {
            LeftAsymmetric => LeftAsymmetric6,
            RightAsymmetric => RightAsymmetric6,
            LeftSymmetric => LeftSymmetric6,
            RightSymmetric => RightSymmetric6,
            ParityFirst => ParityFirst6,
            other => other,
        }
    }

    /// The layout of a RAID5 that is left of a RAID6 with this one without its last member, if that is one.
    pub fn without_q_last(self) -> Option<ParityLayout> {
        let all = [
            LeftAsymmetric,
            RightAsymmetric,
            LeftSymmetric,
            RightSymmetric,
            ParityFirst,
            ParityLast,
        ];
        all.into_iter().find(|layout| layout.with_q_last() == self)
    }

    /// Does `level` have this layout? RAID4 is fixed, and has none.
    pub fn belongs_to(self, level: Level) -> bool {
        match level {
            Level::Raid5 => self <= ParityLast,
            Level::Raid6 => true,
            _ => false,
        }
    }

    fn row(self) -> (ParityLayout, u32, &'static str, &'static str) {
        TABLE[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_the_order_of_the_variants() {
        for (index, (layout, ..)) in TABLE.into_iter().enumerate() {
            assert_eq!(layout as usize, index);
        }
    }

    #[test]
    fn ddf_names_depend_on_the_level() {
        let word = |level, name| ParityLayout::from_name(level, name).map(ParityLayout::to_md);
        assert_eq!(word(Level::Raid5, "ddf-N-continue"), Some(2));
        assert_eq!(word(Level::Raid6, "ddf-N-continue"), Some(10));
        assert_eq!(word(Level::Raid5, "ddf-zero-restart"), Some(1));
        assert_eq!(word(Level::Raid5, "left-symmetric-6"), None);
        assert_eq!(word(Level::Raid6, "parity-last-6"), Some(5));
        assert_eq!(word(Level::Raid5, ""), None);
        assert_eq!(word(Level::Raid6, "rs"), Some(3));
    }

    #[test]
    fn raid5_has_six_and_raid6_fourteen() {
        let count = |level| (0..64).filter(|&w| ParityLayout::from_md(level, w).is_some()).count();
        assert_eq!((count(Level::Raid5), count(Level::Raid6), count(Level::Raid4)), (6, 14, 0));
    }
}
