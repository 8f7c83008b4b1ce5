//! What members hold, read past the server.

use lapstrake_geometry::Sectors;
use lapstrake_metadata::Superblock;
use lapstrake_metadata::bitmap;
use lapstrake_metadata::detect::probe;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub fn read(path: &Path, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    File::open(path).expect("is there").read_exact_at(&mut bytes, offset).expect("reads");
    bytes
}

pub fn superblock(path: &Path) -> Superblock {
    let file = File::open(path).expect("is there");
    let sectors = Sectors(file.metadata().expect("has a size").len() / 512);
    let found = probe(sectors, |offset, bytes| file.read_exact_at(bytes, offset)).expect("reads");
    found.best().expect("a superblock").clone()
}

/// The bits that are set in a member's bitmap.
pub fn bits(path: &Path) -> Vec<u64> {
    let sector = superblock(path).bitmap_sector().expect("has a bitmap");
    let head = bitmap::Superblock::parse(&read(path, sector.bytes(), 512)).expect("sound");
    let len = head.image_bytes().next_multiple_of(512) as usize;
    let image = read(path, sector.bytes(), len);
    bitmap::Bits::from_image(&head, &image).expect("sound").iter_set(0).collect()
}

/// A sum over a file's bytes.
pub fn digest(path: &Path) -> u64 {
    let bytes = std::fs::read(path).expect("reads");
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    words.chain(rest.iter().map(|&byte| byte.into())).fold(bytes.len() as u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}
