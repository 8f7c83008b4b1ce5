//! Who is missing, put on record before the others get what that one will lack.

use super::force::with_state_of;
use crate::{Role, Superblock};
use alloc::vec::Vec;

/// Superblocks for `members` of an array, by their places there, that call everybody failed who holds a slot by the
/// freshest of them and is not among them; an event later, so that nobody of those comes back as current. They are to be
/// written in this order, each to be stable before the next: whoever is an event behind is brought up first, so that no
/// two members are more than one event apart wherever that ends. None if all are there.
#[must_use]
pub fn record_absent(members: &[&Superblock]) -> Vec<(usize, Superblock)> {
    let Some(freshest) = members.iter().max_by_key(|sb| sb.events()) else { return Vec::new() };
    let is_here = |number: u32| members.iter().any(|sb| sb.dev_number() == number);
    let holds_slot = |number: &u32| matches!(freshest.role_of(*number), Role::Active(_));
    let absent: Vec<u32> =
        (0..freshest.table_len()).filter(holds_slot).filter(|&n| !is_here(n)).collect();
    if absent.is_empty() {
        return Vec::new();
    }
    let mut model = (*freshest).clone();
    // A spare that was being given a slot has not said so itself: it is a spare, and has nothing of the slot's.
    let spares = members.iter().filter(|sb| sb.role() == Role::Spare);
    spares.for_each(|spare| model.set_role_of(spare.dev_number(), Role::Spare));
    let is_behind = |(_, sb): &(usize, &&Superblock)| sb.events() < freshest.events();
    let behind = members.iter().enumerate().filter(is_behind);
    let mut writes: Vec<_> = behind.map(|(index, sb)| (index, with_state_of(sb, &model))).collect();
    model.set_events(freshest.events().saturating_add(1));
    absent.iter().for_each(|&number| model.set_role_of(number, Role::Faulty));
    writes.extend(members.iter().enumerate().map(|(i, sb)| (i, with_state_of(sb, &model))));
    writes
}
