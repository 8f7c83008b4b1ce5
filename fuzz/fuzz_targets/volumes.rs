//! A device of any bytes can be looked at: what it holds, LVM's text, and where a group's volumes lie. Input: bytes from the
//! device's start, behind which it is zeros up to 64 MiB; and, as LVM's text, all of it.

#![no_main]

use lapstrake_volumes::{Content, Group, Map, Place, identify, parse};
use libfuzzer_sys::fuzz_target;

const SIZE: u64 = 64 << 20;

fuzz_target!(|data: &[u8]| {
    let get = |at: u64, len: u64| {
        let end = at.saturating_add(len).min(SIZE);
        (at..end).map(|at| data.get(at as usize).copied().unwrap_or(0)).collect()
    };
    if let Content::PhysicalVolume(Ok(volume)) = identify(SIZE, None, get) {
        volume.group.iter().for_each(map);
    }
    if let Ok(group) = parse(data).map_err(drop).and_then(|text| Group::from_text(&text).map_err(drop)) {
        map(&group);
    }
});

fn map(group: &Group) {
    for volume in &group.volumes {
        let find = |_: &_| Some((Place { device: 0, offset: 0 }, i64::MAX as u64));
        let Ok(map) = Map::of(group, volume, find) else { continue };
        assert_eq!(map.bytes(), volume.bytes());
        let end = map.bytes().min(1 << 20);
        let pieces: u64 = map.pieces(0..end).take(4096).map(|piece| piece.len).sum();
        assert!(pieces == end || map.pieces(0..end).nth(4096).is_some());
        let ranges: u64 = map.ranges(0..map.bytes()).iter().map(|piece| piece.len).sum();
        assert_eq!(ranges, map.bytes());
    }
}
