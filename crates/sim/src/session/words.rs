//! Events in words, for the trace.

use super::Event;
use lapstrake_engine::{MemberIo, MetaWrite};
use lapstrake_metadata::{
    Superblock,
    bitmap::{self, Bits},
    v1, v090,
};

/// A metadata write in words, for the trace.
pub(super) fn said(write: &MetaWrite) -> String {
    let (data, at) = (&write.data, write.sector.0);
    if let Ok(sb) = bitmap::Superblock::parse(data) {
        let bits: Vec<u64> = Bits::from_image(&sb, data)
            .map_or_else(|_| Vec::new(), |bits| bits.iter_set(0).collect());
        return format!("bitmap of {} events, bits {bits:?}", sb.events);
    }
    let mut all = (0..3).filter_map(|minor| v1::Superblock::parse(data, minor, at).ok());
    let v090 = || v090::Superblock::parse(data, at).ok().map(Superblock::V090);
    let Some(sb) = all.next().map(Superblock::V1).or_else(v090) else {
        return format!("{} bytes", data.len());
    };
    format!("superblock of {}", in_words(&sb))
}

/// What a superblock says, for the trace.
pub(crate) fn in_words(sb: &Superblock) -> String {
    let roles: Vec<_> = (0..8).map(|number| sb.role_of(number).to_string()).collect();
    let (number, events, component) = (sb.dev_number(), sb.events(), sb.component().0);
    let (resync, roles) = (sb.resync_offset(), roles.join(", "));
    format!("number {number}, {events} events, component {component}, resync {resync:?}, {roles}")
}

/// An event in words, without the bytes that it moves.
pub(super) fn shown(event: &Event) -> String {
    match event {
        Event::Io(flight) => {
            let MemberIo { id, member, kind, sector, len, .. } = &flight.io;
            format!("shard {}'s {id:?} ends: {member:?} {kind:?} {sector:?} {len:?}", flight.shard)
        }
        Event::MetaWrite { write, .. } => format!("metadata for {:?} ends", write.target),
        other => format!("{other:?}"),
    }
}
