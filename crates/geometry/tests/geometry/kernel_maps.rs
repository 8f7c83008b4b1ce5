//! The maps agree with the kernel's md, sector by sector, on all arrays of `vectors/maps.txt`.
//!
//! `vectors/make.sh` made that file; `vectors/maps.py` describes its form.

use std::collections::{HashMap, HashSet};

use lapstrake_geometry::*;

/// What a sector of a member held after the kernel had written the whole array.
#[derive(Clone, Debug, PartialEq)]
enum Held {
    Data(u64),
    P,
    Q(Vec<u8>),
    Nothing,
}

/// One array of the file.
struct Trace {
    config: Config,
    /// `None` if the kernel refused it.
    size: Option<Sectors>,
    /// By slot, by sector.
    members: Vec<Vec<Held>>,
}

fn traces() -> Vec<Trace> {
    let text = include_str!("../vectors/maps.txt");
    let arrays = text.split("\n\n").map(|block| block.trim_start_matches('#'));
    arrays.filter(|block| block.starts_with("level=")).map(read_trace).collect()
}

fn read_trace(block: &str) -> Trace {
    let mut lines = block.lines();
    let properties: HashMap<&str, &str> =
        lines.next().unwrap().split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
    let level: Level = properties["level"].parse().unwrap();
    let word = properties["layout"].parse::<i64>().unwrap() as u32;
    let number = |key: &str| properties[key].parse::<u64>().unwrap();
    let member_sizes: Vec<Sectors> =
        properties["members"].split(',').map(|size| Sectors(size.parse().unwrap())).collect();
    let config = Config {
        level,
        layout: Layout::from_md(level, word).unwrap_or(Layout::None),
        chunk: Sectors::from_bytes(number("chunk")),
        raid_disks: member_sizes.len() as u16,
        component: Sectors::from_kib(number("component")),
        member_sizes,
    };
    let size = properties["size"].parse().ok().map(Sectors);
    Trace { config, size, members: lines.map(read_member).collect() }
}

fn read_member(line: &str) -> Vec<Held> {
    let mut held = Vec::new();
    for token in line.split_whitespace() {
        let (what, count) = token.split_once('*').unwrap();
        for index in 0..count.parse().unwrap() {
            held.push(match what.as_bytes()[0] {
                b'-' => Held::Nothing,
                b'P' => Held::P,
                b'Q' => Held::Q(
                    what[1..].chars().map(|power| power.to_digit(36).unwrap() as u8).collect(),
                ),
                _ => Held::Data(what.parse::<u64>().unwrap() + index),
            });
        }
    }
    held
}

/// What the geometry says that a member's sector holds, in the trace's terms.
fn told(geometry: &Geometry, slot: Slot, sector: Sector) -> Held {
    match (geometry.content(slot, sector), geometry) {
        (Content::Data(array), _) => Held::Data(array.0),
        // One data chunk and its parity look alike.
        (Content::P(stripe), Geometry::Parity(parity)) if parity.data_disks() == 1 => {
            Held::Data(parity.array_sector(stripe, 0, parity.stripe_at(sector).1).0)
        }
        (Content::P(_), _) => Held::P,
        (Content::Q(stripe), Geometry::Parity(parity)) => {
            let powers = 0..parity.data_disks();
            Held::Q(powers.map(|index| parity.q_exponent(stripe, index)).collect())
        }
        (Content::Q(_), _) => panic!("Q without parity"),
        (Content::Unused, _) => Held::Nothing,
    }
}

#[test]
fn every_sector_of_every_member_holds_what_the_kernel_put_there() {
    let mut sectors = 0;
    for trace in traces() {
        let Ok(geometry) = Geometry::new(&trace.config) else { continue };
        assert_eq!(Some(geometry.array_sectors()), trace.size, "{:?}", trace.config);
        for (slot, member) in trace.members.iter().enumerate() {
            for sector in 0..trace.config.member_sizes[slot].0 {
                let held = member.get(sector as usize).unwrap_or(&Held::Nothing);
                let told = told(&geometry, Slot(slot as u16), Sector(sector));
                assert_eq!(&told, held, "slot {slot} sector {sector} of {:?}", trace.config);
                sectors += 1;
            }
        }
    }
    assert!(sectors > 300_000, "only {sectors} sectors were compared");
}

#[test]
fn every_home_of_every_array_sector_is_where_the_kernel_put_it() {
    for trace in traces() {
        let Ok(geometry) = Geometry::new(&trace.config) else { continue };
        for address in 0..geometry.array_sectors().0 {
            let run = geometry.map(Sector(address));
            for home in run.homes {
                for ahead in 0..run.len.0 {
                    let held = &trace.members[home.slot.index()][(home.sector.0 + ahead) as usize];
                    assert_eq!(held, &Held::Data(address + ahead), "{:?}", trace.config);
                }
            }
        }
    }
}

#[test]
fn what_the_kernel_refuses_is_refused() {
    let mut refused = 0;
    for trace in traces().into_iter().filter(|trace| trace.size.is_none()) {
        refused += 1;
        let error = Geometry::new(&trace.config).unwrap_err();
        match trace.config.level {
            Level::Raid0 => assert!(matches!(error, GeometryError::AmbiguousRaid0 { .. })),
            _ => assert!(matches!(
                error,
                // The first is what an unknown layout word becomes here.
                GeometryError::LayoutOfOtherLevel { .. } | GeometryError::CopyCount { .. }
            )),
        }
    }
    assert!(refused >= 10, "only {refused} refusals were compared");
}

/// The only arrays that we refuse and the kernel runs are those on which it has lost copies.
#[test]
fn refused_arrays_that_the_kernel_runs_lack_copies_there() {
    let mut collisions = 0;
    for trace in traces().into_iter().filter(|trace| trace.size.is_some()) {
        let Layout::Raid10(layout) = trace.config.layout else { continue };
        let mut homes: HashMap<u64, HashSet<usize>> = HashMap::new();
        for (slot, member) in trace.members.iter().enumerate() {
            for held in member {
                if let Held::Data(address) = held {
                    homes.entry(*address).or_default().insert(slot);
                }
            }
        }
        let copies = layout.near as usize * layout.far as usize;
        let all = (0..trace.size.unwrap().0)
            .all(|address| homes.get(&address).is_some_and(|slots| slots.len() == copies));
        match Geometry::new(&trace.config) {
            Ok(_) => assert!(all),
            Err(GeometryError::CopiesCollide { .. }) => {
                assert!(!all, "{:?}", trace.config);
                collisions += 1;
            }
            Err(error) => panic!("{error}: {:?}", trace.config),
        }
    }
    assert!(collisions >= 10, "only {collisions} collisions were compared");
}
