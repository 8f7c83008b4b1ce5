//! A simulated disk with a volatile cache.
//!
//! A write that has ended shows at once but lies in the cache: [`Disk::log`] holds such writes in
//! order over the `stable` image. A flush makes stable what had ended when it was sent; a FUA
//! write makes its own sectors stable. A power cut keeps, for each sector by itself, either the
//! stable bytes or those of any cached write that is not older than the sector's last FUA write;
//! so writes are torn, lost and reordered at the grain of a sector. Writes still on their way are
//! taken for cached ones.
//!
//! A sector may be bad: it cannot be read, and its bytes are gone. A write mends it, durably, as a
//! drive does that puts another in its place; or does not ([`Wear`]).

use crate::dice::Dice;
use std::collections::BTreeMap;

pub(crate) const SECTOR: usize = 512;
/// What a bad sector holds, should it ever be read again.
const ROT: u64 = 0x0bad_b10c_0bad_b10c;

/// What a bad sector does when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wear {
    /// It is good again.
    Latent,
    /// It takes the write, and cannot be read all the same.
    Worn,
    /// It refuses.
    Refusing,
}

#[derive(Clone, Debug)]
struct Cached {
    sector: u64,
    data: Vec<u8>,
    fua: bool,
    /// Goes to the medium as a whole or not at all.
    whole: bool,
}

/// How much of the cache a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Nothing,
    Everything,
    AnySectors,
}

#[derive(Clone, Debug)]
pub(crate) struct Disk {
    visible: Vec<u8>,
    stable: Vec<u8>,
    log: Vec<Cached>,
    /// Writes that flushes have taken out of `log`, so that a place in it has a lasting number.
    flushed: u64,
    bad: BTreeMap<u64, Wear>,
}

impl Disk {
    pub(crate) fn new(sectors: u64) -> Self {
        let image = vec![0; sectors as usize * SECTOR];
        Self {
            visible: image.clone(),
            stable: image,
            log: Vec::new(),
            flushed: 0,
            bad: BTreeMap::new(),
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        (self.stable.len() / SECTOR) as u64
    }

    /// What a read shows.
    pub(crate) fn bytes(&self, sector: u64, len: usize) -> &[u8] {
        let at = sector as usize * SECTOR;
        &self.visible[at..at + len]
    }

    /// Bytes from any place, less at the end, as a prober of superblocks wants them.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) {
        buf.copy_from_slice(&self.visible[offset as usize..offset as usize + buf.len()]);
    }

    /// The sector goes bad.
    pub(crate) fn spoil(&mut self, sector: u64, wear: Wear) {
        self.rot(sector);
        self.bad.insert(sector, wear);
    }

    /// What the sector holds is gone, also what lies in the cache for it.
    fn rot(&mut self, sector: u64) {
        let rot = |bytes: &mut [u8]| {
            bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&ROT.to_le_bytes()));
        };
        let at = sector as usize * SECTOR;
        rot(&mut self.visible[at..at + SECTOR]);
        rot(&mut self.stable[at..at + SECTOR]);
        for Cached { sector: first, data, .. } in &mut self.log {
            let behind = sector.checked_sub(*first).map(|sectors| sectors as usize * SECTOR);
            if let Some(bytes) = behind.and_then(|at| data.get_mut(at..at + SECTOR)) {
                rot(bytes);
            }
        }
    }

    /// Bad sectors, in order.
    pub(crate) fn bad(&self) -> impl Iterator<Item = u64> + '_ {
        self.bad.keys().copied()
    }

    /// A bad sector can be read again, though neither what it once held nor what it was written since.
    pub(crate) fn come_back(&mut self, sector: u64) {
        if self.bad.remove(&sector).is_some() {
            self.rot(sector);
        }
    }

    pub(crate) fn is_readable(&self, sector: u64, sectors: u64) -> bool {
        self.bad.range(sector..sector + sectors).next().is_none()
    }

    /// Whether a write there may not help.
    pub(crate) fn is_worn(&self, sector: u64, sectors: u64) -> bool {
        self.bad.range(sector..sector + sectors).any(|(_, wear)| *wear != Wear::Latent)
    }

    /// From now on every write helps.
    pub(crate) fn renew(&mut self) {
        self.bad.values_mut().for_each(|wear| *wear = Wear::Latent);
    }

    /// Whether a write there fails.
    pub(crate) fn refuses(&self, sector: u64, sectors: u64) -> bool {
        self.bad.range(sector..sector + sectors).any(|(_, wear)| *wear == Wear::Refusing)
    }

    /// Puts bytes on the medium while nothing runs.
    pub(crate) fn put(&mut self, sector: u64, data: &[u8]) {
        assert!(self.log.is_empty(), "somebody else is writing");
        let at = sector as usize * SECTOR;
        self.visible[at..at + data.len()].copy_from_slice(data);
        self.stable[at..at + data.len()].copy_from_slice(data);
        let end = sector + (data.len() / SECTOR) as u64;
        self.bad.retain(|at, _| !(sector..end).contains(at));
    }

    /// A write has ended.
    pub(crate) fn write(&mut self, sector: u64, data: Vec<u8>, fua: bool) {
        if data.len() > SECTOR && !self.is_readable(sector, (data.len() / SECTOR) as u64) {
            for (bytes, sector) in data.chunks(SECTOR).zip(sector..) {
                self.write(sector, bytes.to_vec(), fua);
            }
            return;
        }
        let fua = match self.bad.get(&sector) {
            None => fua,
            Some(Wear::Latent) => self.bad.remove(&sector).is_some(),
            Some(Wear::Worn) => fua,
            Some(Wear::Refusing) => return,
        };
        let at = sector as usize * SECTOR;
        self.visible[at..at + data.len()].copy_from_slice(&data);
        self.log.push(Cached { sector, data, fua, whole: false });
    }

    /// A write has failed, or the power was cut while it was on its way: any of its sectors may
    /// have come through, or, of a `whole` one, all or none.
    pub(crate) fn write_partly(&mut self, sector: u64, data: &[u8], whole: bool, dice: &mut Dice) {
        if whole {
            let at = sector as usize * SECTOR;
            if dice.one_in(2) {
                self.visible[at..at + data.len()].copy_from_slice(data);
                self.log.push(Cached { sector, data: data.to_vec(), fua: false, whole: true });
            }
            return;
        }
        for (bytes, sector) in data.chunks(SECTOR).zip(sector..) {
            if dice.one_in(2) {
                self.write(sector, bytes.to_vec(), false);
            }
        }
    }

    /// Names what has ended by now, for [`Self::flush`].
    pub(crate) fn mark(&self) -> u64 {
        self.flushed + self.log.len() as u64
    }

    /// What had ended at `mark` is stable.
    pub(crate) fn flush(&mut self, mark: u64) {
        let count = mark.saturating_sub(self.flushed) as usize;
        for Cached { sector, data, .. } in self.log.drain(..count) {
            let at = sector as usize * SECTOR;
            self.stable[at..at + data.len()].copy_from_slice(&data);
        }
        self.flushed += count as u64;
    }

    /// A flush failed: some of what was cached never gets to the medium, though it still shows.
    pub(crate) fn lose_some(&mut self, dice: &mut Dice) {
        let before = self.log.len();
        self.log.retain(|cached| cached.fua || !dice.one_in(3));
        self.flushed += (before - self.log.len()) as u64;
    }

    /// The power is cut.
    pub(crate) fn cut(&mut self, how: Cut, dice: &mut Dice) {
        let mut versions_of: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        for cached in &self.log {
            let keep = !cached.whole || dice.one_in(2);
            for (bytes, sector) in cached.data.chunks(SECTOR).zip(cached.sector..) {
                let versions = versions_of.entry(sector).or_default();
                if cached.fua || cached.whole && keep {
                    versions.clear();
                    let at = sector as usize * SECTOR;
                    self.stable[at..at + SECTOR].copy_from_slice(bytes);
                } else if keep {
                    versions.push(bytes);
                }
            }
        }
        for (sector, versions) in versions_of {
            let kept = match how {
                Cut::Nothing => 0,
                Cut::Everything => versions.len(),
                Cut::AnySectors => dice.below(versions.len() as u64 + 1) as usize,
            };
            if kept > 0 {
                let at = sector as usize * SECTOR;
                self.stable[at..at + SECTOR].copy_from_slice(versions[kept - 1]);
            }
        }
        self.log.clear();
        self.visible.copy_from_slice(&self.stable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_that_comes_back_holds_nothing_that_was_written_to_it() {
        for wear in [Wear::Worn, Wear::Refusing] {
            for how in [Cut::Everything, Cut::Nothing] {
                let mut disk = Disk::new(4);
                disk.write(0, vec![1; 3 * SECTOR], false);
                disk.spoil(1, wear);
                disk.write(0, vec![2; 3 * SECTOR], true);
                disk.come_back(1);
                assert!(disk.is_readable(0, 4));
                for _ in 0..2 {
                    let rotten = disk.bytes(1, SECTOR).chunks(8).all(|w| w == ROT.to_le_bytes());
                    assert!(rotten, "{wear:?}, {how:?}: {:?}", &disk.bytes(1, 8));
                    assert!([0, 2].iter().all(|&good| disk.bytes(good, SECTOR) == [2; SECTOR]));
                    disk.cut(how, &mut Dice::new(1));
                }
            }
        }
    }
}
