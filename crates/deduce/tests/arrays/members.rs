//! Members in memory, as an array with given contents has them, without superblocks.

use lapstrake_deduce::{Shape, Source};
use lapstrake_geometry::{Config, Geometry, Level, Parity, Sector, Sectors, Slot};
use lapstrake_parity::kernels;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

pub const BLOCK: u64 = 4096;
type Block = Box<[u8; BLOCK as usize]>;

/// A device of which only blocks that were written take memory.
#[derive(Clone, Default)]
pub struct Sparse {
    pub size: u64,
    blocks: BTreeMap<u64, Block>,
}

impl Sparse {
    pub fn new(size: u64) -> Self {
        Self { size, blocks: BTreeMap::new() }
    }

    /// Writes bytes that lie in one block.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let inside = (offset % BLOCK) as usize;
        let block =
            self.blocks.entry(offset / BLOCK).or_insert_with(|| Box::new([0; BLOCK as usize]));
        block[inside..inside + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes all of another one from a place on, which is a whole block.
    pub fn write_all(&mut self, offset: u64, other: &Self) {
        for (index, block) in &other.blocks {
            self.write(offset + index * BLOCK, &block[..]);
        }
    }

    /// Writes what lies here to where a geometry without parity has it, behind `data_offset` of members.
    pub fn spread(&self, geometry: &Geometry, data_offset: u64, members: &mut [Sparse]) {
        for (index, block) in &self.blocks {
            // The least chunk is a block; linear's members may end within one.
            for part in 0..8 {
                let sector = Sector(index * 8 + part);
                assert!(sector.0 < geometry.array_sectors().0, "the contents do not fit");
                let bytes = &block[part as usize * 512..][..512];
                for home in geometry.map(sector).homes {
                    members[home.slot.index()].write(data_offset + home.sector.bytes(), bytes);
                }
            }
        }
    }

    fn block(&self, offset: u64) -> Block {
        let mut block = Box::new([0; BLOCK as usize]);
        self.read_at(offset, &mut block[..]).unwrap();
        block
    }
}

impl Source for Sparse {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for (index, block) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let (from, to) = ((index * BLOCK).max(offset), ((index + 1) * BLOCK).min(end));
            let part = &block[(from - index * BLOCK) as usize..(to - index * BLOCK) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        let (index, _) = self.blocks.range(offset / BLOCK..).next()?;
        Some((index * BLOCK).max(offset)).filter(|at| *at < self.size)
    }
}

/// An array as it was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub shape: Shape,
    pub data_offset: u64,
    pub component: Sectors,
}

impl Made {
    pub fn geometry(&self) -> Geometry {
        let config = Config {
            level: self.shape.level,
            layout: self.shape.layout,
            chunk: self.shape.chunk,
            raid_disks: self.shape.slots,
            component: self.component,
            member_sizes: vec![self.component; self.shape.slots.into()],
        };
        Geometry::new(&config).unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    /// Its members, in order of their slots, with these contents.
    pub fn members(&self, contents: &Sparse) -> Vec<Sparse> {
        let geometry = self.geometry();
        // A member ends somewhere behind its data; 1.2 uses all that there is.
        let size = self.data_offset + self.component.bytes();
        let mut members = vec![Sparse::new(size); self.shape.slots.into()];
        let mut stripes = BTreeSet::new();
        contents.spread(&geometry, self.data_offset, &mut members);
        for index in contents.blocks.keys() {
            if let Geometry::Parity(parity) = &geometry {
                let (stripe, _, inside) = parity.locate(Sector(index * 8));
                stripes.insert(parity.member_sector(stripe, inside));
            }
        }
        if let Geometry::Parity(parity) = &geometry {
            for sector in stripes {
                self.write_parity(parity, sector, &mut members);
            }
        }
        members
    }

    fn write_parity(&self, parity: &Parity, sector: Sector, members: &mut [Sparse]) {
        let stripe = parity.stripe_at(sector).0;
        let at = self.data_offset + sector.bytes();
        let blocks: Vec<Block> = (0..parity.data_disks())
            .map(|index| members[parity.slot_of_data(stripe, index).index()].block(at))
            .collect();
        let data: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        let mut p = vec![0; BLOCK as usize];
        kernels().xor(&mut p, &data);
        members[parity.slot_of_p(stripe).index()].write(at, &p);
        if let Some(slot) = parity.slot_of_q(stripe) {
            let mut q = vec![0; BLOCK as usize];
            for (index, block) in blocks.iter().enumerate() {
                let power = parity.q_exponent(stripe, index as u16);
                kernels().mul_add(&mut q, &[lapstrake_parity::gf::exp(power)], &[&block[..]]);
            }
            members[slot.index()].write(at, &q);
        }
    }

    /// Whether a deduced arrangement reads this array's first `size` bytes from where they are. `given` says which slot
    /// each given device was.
    pub fn is_read_by(
        &self,
        found: &lapstrake_deduce::Arrangement,
        given: &[usize],
        start: u64,
        size: u64,
    ) -> bool {
        let geometry = self.geometry();
        let addresses = (0..size / 512).step_by((size / 512 / 20_000).max(1) as usize);
        addresses.map(|sector| sector * 512).all(|address| {
            let mut right: Vec<(usize, u64)> = Vec::new();
            for home in geometry.map(Sector(address / 512)).homes {
                let device = given.iter().position(|slot| *slot == home.slot.index());
                right.extend(device.map(|d| (d, self.data_offset + home.sector.bytes())));
            }
            let mut read = found.homes(address + start);
            right.sort_unstable();
            read.sort_unstable();
            // Of copies one is enough.
            read == right || !read.is_empty() && read.iter().all(|home| right.contains(home))
        })
    }
}

/// How many slots may be missing.
pub fn spare_slots(level: Level, copies: u32) -> u16 {
    match level {
        Level::Raid4 | Level::Raid5 => 1,
        Level::Raid6 => 2,
        Level::Raid10 if copies > 1 => 1,
        _ => 0,
    }
}

#[test]
fn parity_is_what_the_geometry_says() {
    use lapstrake_geometry::{Layout, ParityLayout};
    let shape = Shape {
        level: Level::Raid5,
        layout: Layout::Parity(ParityLayout::LeftSymmetric),
        chunk: Sectors(8),
        slots: 3,
    };
    let made = Made { shape, data_offset: 1 << 20, component: Sectors(64) };
    let mut contents = Sparse::new(1 << 16);
    contents.write(0, &[3; 512]);
    contents.write(4096, &[5; 512]);
    let members = made.members(&contents);
    let first = |slot: usize| members[slot].block(1 << 20)[0];
    assert_eq!([first(0), first(1), first(2)], [3, 5, 6]);
    let _ = Slot(0);
}
