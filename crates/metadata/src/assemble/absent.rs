//! Who is missing, put on record before the others get what that one will lack.

use alloc::vec::Vec;

use crate::{Role, Superblock};

/// Superblocks for all `members` of an array, in which everybody is failed who holds a slot by the freshest of
/// them and is not among them; an event later, so that nobody of those comes back as current. None if all
/// are there.
pub fn record_absent(members: &[&Superblock]) -> Option<Vec<Superblock>> {
    let freshest = members.iter().max_by_key(|sb| sb.events())?;
    let is_here = |number: u32| members.iter().any(|sb| sb.dev_number() == number);
    let holds_slot = |number: &u32| matches!(freshest.role_of(*number), Role::Active(_));
    let absent: Vec<u32> =
        (0..freshest.table_len()).filter(holds_slot).filter(|&n| !is_here(n)).collect();
    let events = freshest.events().saturating_add(1);
    (!absent.is_empty()).then(|| {
        let recorded = members.iter().map(|sb| {
            let mut sb = (*sb).clone();
            sb.set_events(events);
            sb.set_utime(freshest.utime().0);
            absent.iter().for_each(|&number| sb.set_role_of(number, Role::Faulty));
            sb
        });
        recorded.collect()
    })
}
