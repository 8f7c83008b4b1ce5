//! What is written is there, stable, and recorded as clean; what must not be written is left.

use crate::support::{CHUNK, Rig, contents, kinds, raid5};
use lapstrake::metadata::assemble::Refusal;
use lapstrake::{Array, IoError, OpenOptions, examine};
use std::fs;
use std::io::{Seek, SeekFrom, Write};

#[test]
fn odd_writes_are_read_back_also_from_what_is_left() {
    for kind in kinds() {
        let mut rig = Rig::full(kind);
        let left = &rig.members[kind.spared.min(1)..];
        let array = OpenOptions::new().degraded(true).open(left).unwrap();
        let noise = contents(3 << 20);
        let mut at = 0;
        for len in [1, 511, 512, 4096, 4097, CHUNK as usize + 1, (1 << 20) + 77] {
            at += 1001;
            array.write_at(at as u64, &noise[at..][..len]).unwrap();
            rig.contents[at..][..len].copy_from_slice(&noise[at..][..len]);
            at += len;
        }
        array.flush().unwrap();
        array.close().unwrap();
        let array = Array::open_read_only(left).unwrap();
        let mut buf = vec![0; rig.contents.len()];
        array.read_at(0, &mut buf).unwrap();
        assert!(buf == rig.contents, "{kind:?}");
    }
}

#[test]
fn writers_of_one_block_do_not_undo_each_other() {
    let rig = Rig::empty(raid5());
    let array = Array::open(&rig.members).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let array = &array;
            scope.spawn(move || {
                for turn in (thread..400).step_by(4) {
                    array.write_at(turn as u64 * 10, &[turn as u8; 10]).unwrap();
                }
            });
        }
    });
    let mut buf = vec![0; 4000];
    array.read_at(0, &mut buf).unwrap();
    assert!(buf.chunks(10).enumerate().all(|(turn, bytes)| bytes == [turn as u8; 10]));
}

#[test]
fn an_array_is_a_writer_that_stops_at_its_end() {
    let rig = Rig::empty(raid5());
    let mut array = Array::open(&rig.members).unwrap();
    let len = array.len();
    array.seek(SeekFrom::Start(len - 3)).unwrap();
    assert_eq!(array.write(b"planks").unwrap(), 3);
    assert_eq!(array.write(b"nks").unwrap(), 0);
    Write::flush(&mut array).unwrap();
    let mut tail = [0; 3];
    array.read_at(len - 3, &mut tail).unwrap();
    assert_eq!(&tail, b"pla");
    let beyond = IoError::OutOfRange { offset: len - 3, len: 6, size: len };
    assert_eq!(array.write_at(len - 3, b"planks"), Err(beyond));
}

#[test]
fn closed_or_dropped_it_is_clean_and_given_back() {
    let rig = Rig::empty(raid5());
    for is_closed in [true, false] {
        let array = Array::open(&rig.members).unwrap();
        array.write_at(0, b"planks").unwrap();
        assert!(Array::open_read_only(&rig.members).is_err(), "they are locked");
        match is_closed {
            true => array.close().unwrap(),
            false => drop(array),
        }
        for member in &rig.members {
            assert!(examine(member).unwrap().superblock().unwrap().clean());
        }
    }
}

#[test]
fn a_member_that_is_missing_for_the_first_time_must_be_allowed_for_to_write() {
    let rig = Rig::full(raid5());
    let before = rig.images(&rig.members);
    let refused = Array::open(&rig.members[1..]).unwrap_err();
    assert!(matches!(refused.refusal(), Some(Refusal::NewlyDegraded { .. })), "{refused}");
    let refused = Array::open_read_only(&rig.members[..1]).unwrap_err();
    assert!(matches!(refused.refusal(), Some(Refusal::NotEnough { .. })), "{refused}");
    assert!(rig.images(&rig.members) == before);
}

#[test]
fn an_overlay_takes_what_is_written_and_keeps_it() {
    let rig = Rig::full(raid5());
    let before = rig.images(&rig.members);
    let overlay = rig.directory().join("rescue.cow");
    let mut options = OpenOptions::new();
    options.overlay(&overlay);
    let array = options.open(&rig.members).unwrap();
    array.write_at(12_345, b"planks").unwrap();
    array.close().unwrap();
    assert!(fs::metadata(&overlay).unwrap().len() > 0);
    let mut text = [0; 6];
    options.open(&rig.members).unwrap().read_at(12_345, &mut text).unwrap();
    assert_eq!(&text, b"planks");
    assert!(rig.images(&rig.members) == before);
    let readers = rig.images(&rig.members).into_iter();
    let readers = readers.map(|(name, image)| (name, std::io::Cursor::new(image)));
    assert!(options.open_readers(readers).is_err(), "whose reads it would not see");
}
