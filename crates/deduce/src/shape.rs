//! What an array can look like: level, layout, chunk and number of slots.

use lapstrake_geometry::{
    Config, Geometry, Layout, Level, ParityLayout, Raid0Layout, Raid10Layout, Sectors,
};

/// Chunks that are tried: what mdadm and NAS firmware choose, and all between.
const CHUNKS_KIB: [u64; 11] = [4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// All of an array's geometry that is neither a size nor an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The level.
    pub level: Level,
    /// Its layout.
    pub layout: Layout,
    /// Chunk; zero where there is none.
    pub chunk: Sectors,
    /// Number of slots, those of missing members too.
    pub slots: u16,
}

impl Shape {
    /// Every shape that an array with these devices as members, and perhaps some missing, can have; linear is no
    /// question of a shape.
    pub(crate) fn all(devices: u16) -> Vec<Shape> {
        let mut shapes = Vec::new();
        let none = Sectors::ZERO;
        shapes.push(Shape {
            level: Level::Raid1,
            layout: Layout::None,
            chunk: none,
            slots: devices,
        });
        for chunk in CHUNKS_KIB.map(Sectors::from_kib) {
            let mut push = |level: Level, layout, slots: u16| {
                if slots >= devices && slots <= level.max_members() {
                    shapes.push(Shape { level, layout, chunk, slots });
                }
            };
            if devices >= 2 {
                push(Level::Raid0, Layout::Raid0(Raid0Layout::Original), devices);
            }
            // Of two members it is a mirror with another name.
            for slots in (devices..=devices + 1).filter(|slots| *slots >= 3) {
                push(Level::Raid4, Layout::None, slots);
                for layout in parity(Level::Raid5) {
                    push(Level::Raid5, layout, slots);
                }
            }
            for slots in (devices..=devices + 2).filter(|slots| *slots >= 4) {
                for layout in parity(Level::Raid6) {
                    push(Level::Raid6, layout, slots);
                }
            }
            for slots in (devices..=devices + 2).filter(|slots| *slots >= 3) {
                for layout in copies().into_iter().filter(|l| l.copies() < u32::from(slots)) {
                    push(Level::Raid10, Layout::Raid10(layout), slots);
                }
            }
            if devices == 2 {
                for layout in [Raid10Layout::far(2), Raid10Layout::offset(2)] {
                    push(Level::Raid10, Layout::Raid10(layout), 2);
                }
            }
        }
        shapes
    }

    /// With so much used of each member, or `sizes` of linear's and RAID0's. None if md has no such array.
    pub(crate) fn geometry(&self, component: Sectors, sizes: Vec<Sectors>) -> Option<Geometry> {
        let Shape { level, layout, chunk, slots: raid_disks } = *self;
        let config = Config { level, layout, chunk, raid_disks, component, member_sizes: sizes };
        Geometry::new(&config).ok()
    }

    /// With equal members of which so much can be used.
    pub(crate) fn even(&self, usable: Sectors) -> Option<Geometry> {
        let component = usable.round_down(self.chunk);
        self.geometry(component, vec![component; self.slots.into()])
    }

    /// Whether a second copy's place depends on how much of the members is used.
    pub(crate) fn is_far(&self) -> bool {
        matches!(self.layout, Layout::Raid10(layout) if layout.far > 1 && !layout.offset)
    }

    /// How much less usual than others, as a logarithm of odds, natural.
    pub(crate) fn prior(&self) -> f64 {
        let chunk = match self.chunk.0 / 2 {
            0 | 512 => 0.0,
            64 => -0.7,
            32 | 128 | 256 | 1024 => -2.0,
            _ => -3.0,
        };
        let layout = match self.layout {
            Layout::None | Layout::Raid0(_) | Layout::Parity(ParityLayout::LeftSymmetric) => 0.0,
            Layout::Parity(layout) if layout <= ParityLayout::RightSymmetric => -1.5,
            // Of arrays by other makers, and of some that mdadm has turned from RAID5 into RAID6 by half.
            Layout::Parity(layout) if layout <= ParityLayout::DdfNContinue => -3.0,
            Layout::Parity(_) => -6.0,
            Layout::Raid10(layout) if layout == Raid10Layout::near(2) => 0.0,
            Layout::Raid10(_) => -1.5,
        };
        let level = match self.level {
            Level::Linear => -1.5,
            Level::Raid4 => -0.5,
            _ => 0.0,
        };
        chunk + layout + level
    }
}

/// RAID5's with all parity on one member are RAID4 by another name.
fn parity(level: Level) -> impl Iterator<Item = Layout> {
    use ParityLayout::{ParityFirst, ParityLast};
    let is_raid4 = move |layout: &ParityLayout| {
        level == Level::Raid5 && matches!(layout, ParityFirst | ParityLast)
    };
    let all = ParityLayout::all().filter(move |layout| layout.belongs_to(level));
    all.filter(move |layout| !is_raid4(layout)).map(Layout::Parity)
}

fn copies() -> [Raid10Layout; 6] {
    [
        Raid10Layout::near(2),
        Raid10Layout::far(2),
        Raid10Layout::offset(2),
        Raid10Layout::near(3),
        Raid10Layout::far(3),
        Raid10Layout::offset(3),
    ]
}
