//! Contents by which a read is held against what was written.
//!
//! Every sector begins with its own offset and the generation of its block (how often that was written); the rest is
//! random bytes that all sectors share. So a write that was lost, misdirected or torn shows as what it is.
//!
//! Invariant: a block of which a write is under way, or failed, is not checked: it may hold either.

use std::collections::BTreeSet;

/// md's unit.
const SECTOR: usize = 512;
const STAMP: usize = 16;

/// What was written to the blocks of one range.
pub(crate) struct Stamps {
    from: u64,
    block: u64,
    /// By block: how often it was written; 0: never, and its contents are not known.
    generations: Vec<u32>,
    /// Blocks of which a write is under way.
    open: BTreeSet<u64>,
    filler: Vec<u8>,
}

impl Stamps {
    /// For blocks in `from..to`.
    pub(crate) fn new(from: u64, to: u64, block: u64, filler: Vec<u8>) -> Self {
        let count = ((to - from) / block).max(1) as usize;
        Self { from, block, generations: vec![0; count], open: BTreeSet::new(), filler }
    }

    fn index(&self, offset: u64) -> u64 {
        (offset - self.from) / self.block
    }

    /// Whether a block may be written now: a second write of it would leave open which one is last.
    pub(crate) fn is_open(&self, offset: u64) -> bool {
        self.open.contains(&self.index(offset))
    }

    /// Stamps memory that is about to be written.
    pub(crate) fn write(&mut self, offset: u64, memory: &mut [u8]) {
        let index = self.index(offset);
        self.open.insert(index);
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1).max(1);
        for (number, sector) in memory.chunks_mut(SECTOR).enumerate() {
            sector.copy_from_slice(&self.filler[..sector.len()]);
            sector[..STAMP].copy_from_slice(&stamp(offset + (number * SECTOR) as u64, *generation));
        }
    }

    /// A write has ended; one that failed leaves the contents unknown.
    pub(crate) fn written(&mut self, offset: u64, good: bool) {
        let index = self.index(offset);
        self.open.remove(&index);
        if !good {
            self.generations[index as usize] = 0;
        }
    }

    /// The generation that a read now begun must find; none if it cannot be known.
    pub(crate) fn expected(&self, offset: u64) -> Option<u32> {
        let index = self.index(offset);
        let generation = self.generations[index as usize];
        (generation > 0 && !self.open.contains(&index)).then_some(generation)
    }

    /// Holds what was read against what a read begun earlier must find.
    ///
    /// # Errors
    /// What differs, and where.
    pub(crate) fn check(&self, offset: u64, expected: u32, memory: &[u8]) -> Result<(), String> {
        // Written again meanwhile: it may hold either.
        if self.expected(offset) != Some(expected) {
            return Ok(());
        }
        for (number, sector) in memory.chunks(SECTOR).enumerate() {
            let at = offset + (number * SECTOR) as u64;
            if sector[..STAMP] != stamp(at, expected) {
                return Err(format!("at byte {at}: {}", difference(sector, at, expected)));
            }
            if sector[STAMP..] != self.filler[STAMP..sector.len()] {
                return Err(format!(
                    "at byte {at}: the sector's stamp is right, the rest is not what was written"
                ));
            }
        }
        Ok(())
    }

    /// All blocks whose contents are known.
    pub(crate) fn known(&self) -> impl Iterator<Item = u64> {
        let known = self.generations.iter().enumerate().filter(|(_, generation)| **generation > 0);
        known.map(|(index, _)| self.from + index as u64 * self.block)
    }
}

fn stamp(offset: u64, generation: u32) -> [u8; STAMP] {
    let mut stamp = [0; STAMP];
    stamp[..8].copy_from_slice(&offset.to_le_bytes());
    stamp[8..12].copy_from_slice(&generation.to_le_bytes());
    stamp[12..].copy_from_slice(b"LaPs");
    stamp
}

fn difference(sector: &[u8], at: u64, expected: u32) -> String {
    let offset = sector[..8].try_into().map_or(0, u64::from_le_bytes);
    let generation = sector[8..12].try_into().map_or(0, u32::from_le_bytes);
    if sector[12..STAMP] != *b"LaPs" {
        return format!("it holds {:02x?}..., nothing that was ever written there", &sector[..8]);
    }
    if offset != at {
        return format!("it holds what was written at byte {offset}");
    }
    format!("it holds write {generation} of that place; the last one was {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps() -> (Stamps, Vec<u8>) {
        (Stamps::new(4096, 4096 + 4 * 1024, 1024, vec![7; SECTOR]), vec![0; 1024])
    }

    #[test]
    fn what_was_written_is_found_right() {
        let (mut stamps, mut memory) = stamps();
        assert_eq!(stamps.expected(5120), None);
        stamps.write(5120, &mut memory);
        assert!(stamps.is_open(5120) && stamps.expected(5120).is_none());
        stamps.written(5120, true);
        let expected = stamps.expected(5120).unwrap();
        assert_eq!(stamps.check(5120, expected, &memory), Ok(()));
        assert_eq!(stamps.known().collect::<Vec<_>>(), [5120]);
    }

    #[test]
    fn lost_misdirected_and_torn_writes_are_told_apart() {
        let (mut stamps, mut old) = stamps();
        let mut new = old.clone();
        stamps.write(4096, &mut old);
        stamps.written(4096, true);
        stamps.write(4096, &mut new);
        stamps.written(4096, true);
        let lost = stamps.check(4096, 2, &old).unwrap_err();
        assert_eq!(lost, "at byte 4096: it holds write 1 of that place; the last one was 2");
        let torn = [&new[..512], &old[512..]].concat();
        assert!(stamps.check(4096, 2, &torn).unwrap_err().starts_with("at byte 4608: "));
        let swapped = [&new[512..], &new[512..]].concat();
        let moved = stamps.check(4096, 2, &swapped).unwrap_err();
        assert_eq!(moved, "at byte 4096: it holds what was written at byte 4608");
        new[700] ^= 1;
        assert!(
            stamps.check(4096, 2, &new).unwrap_err().contains("the rest is not what was written")
        );
    }

    #[test]
    fn a_block_whose_write_failed_is_not_known() {
        let (mut stamps, mut memory) = stamps();
        stamps.write(4096, &mut memory);
        stamps.written(4096, false);
        assert_eq!(stamps.expected(4096), None);
        assert_eq!(stamps.check(4096, 1, &[0; 1024]), Ok(()));
    }
}
