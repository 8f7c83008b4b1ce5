//! Images that somebody made to do harm give errors or other bytes, and no panic.

use crate::support::{Kind, Rig, panics, raid5};
use lapstrake::{
    Array, Level, OpenOptions, examine_reader, geometry::Layout, geometry::Raid10Layout,
};
use std::io::{Cursor, Read};

/// Where a superblock 1.2 lies, what it takes without roles, and its checksum and count of roles.
pub const SUPERBLOCK: usize = 4096;
const BARE: usize = 256;
const CHECKSUM: usize = 216;
const ROLES: usize = 220;

/// Draws that are the same each time (xorshift).
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().unwrap())
}

/// Makes the checksum fit, or a change would go no further than that.
pub fn seal(image: &mut [u8]) {
    let roles = word(&image[SUPERBLOCK + ROLES..]) as usize;
    let Some(end) = roles.checked_mul(2).and_then(|len| len.checked_add(SUPERBLOCK + BARE)) else {
        return;
    };
    let Some(superblock) = image.get_mut(SUPERBLOCK..end) else { return };
    superblock[CHECKSUM..][..4].fill(0);
    let sum: u64 = superblock
        .chunks(4)
        .map(|chunk| {
            let mut word = [0; 4];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from(u32::from_le_bytes(word))
        })
        .sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    superblock[CHECKSUM..][..4].copy_from_slice(&(sum as u32).to_le_bytes());
}

/// What is done to a field tends to be one of these.
const VALUES: [u8; 6] = [0, 1, 2, 0x7f, 0x80, 0xff];

fn spoil(draws: &mut Draws, image: &mut [u8]) {
    for _ in 0..=draws.below(3) {
        let at = SUPERBLOCK + draws.below(BARE + 8);
        let width = [1, 2, 4, 8][draws.below(4)];
        match draws.below(2) {
            0 => image[at..][..width].fill(VALUES[draws.below(VALUES.len())]),
            _ => image[at] ^= 1 << draws.below(8),
        }
    }
    seal(image);
}

fn opened_and_read(images: Vec<Vec<u8>>) -> bool {
    for image in &images {
        if let Ok(member) = examine_reader("image", Cursor::new(image.clone())) {
            let _ = (member.bitmap(), member.bad_blocks());
        }
    }
    let members = ["a", "b", "c"].into_iter().zip(images.into_iter().map(Cursor::new));
    let mut options = OpenOptions::new();
    options.degraded(true).force(true).ignore_unknown(true);
    let Ok(array) = options.open_readers(members) else { return false };
    // The start, a piece behind it, and the end, wherever that is.
    let mut buf = vec![0; 1 << 16];
    for offset in [0, 1 << 20, array.len().saturating_sub(1 << 16)] {
        let _ = array.read_at(offset, &mut buf);
    }
    let _ = array.take(100_000).read_to_end(&mut Vec::new());
    true
}

#[test]
fn spoiled_superblocks_give_errors_and_no_panic() {
    let far = Some(Layout::Raid10(Raid10Layout::far(2)));
    let kinds = [
        raid5(),
        Kind { level: Level::Raid0, layout: None, members: 3, spared: 0 },
        Kind { level: Level::Raid10, layout: far, members: 3, spared: 1 },
        Kind { level: Level::Linear, layout: None, members: 3, spared: 0 },
    ];
    // Threads of an array that panic would be told of as errors.
    let before = panics();
    let (mut draws, mut opened) = (Draws(0x9e37_79b9_7f4a_7c15), 0);
    for kind in kinds {
        let rig = Rig::full(kind);
        let images: Vec<Vec<u8>> =
            rig.images(&rig.members).into_iter().map(|(_, image)| image).collect();
        for _ in 0..60 {
            let mut images = images.clone();
            // One member, or all alike: then what they say is believed.
            match draws.below(2) {
                0 => {
                    let member = draws.below(images.len());
                    spoil(&mut draws, &mut images[member]);
                }
                _ => {
                    let seed = draws.below(usize::MAX) as u64 | 1;
                    images.iter_mut().for_each(|image| spoil(&mut Draws(seed), image));
                }
            }
            opened += usize::from(opened_and_read(images));
        }
    }
    assert_eq!(panics(), before);
    assert!(opened > 20, "only {opened} of 240 went further than their superblocks");
}

#[test]
fn what_is_no_member_is_named() {
    let rig = Rig::full(raid5());
    let (name, mut image) = rig.images(&rig.members[..1]).remove(0);
    for len in [0, 1, 511, SUPERBLOCK, SUPERBLOCK + 100, SUPERBLOCK + BARE, 1 << 20] {
        image.truncate(image.len().min(1 << 20));
        let cut = image[..len.min(image.len())].to_vec();
        let error = Array::open_readers([(&name, Cursor::new(cut))]).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
    let none: [(&str, Cursor<Vec<u8>>); 0] = [];
    assert!(Array::open_readers(none).is_err());
}
