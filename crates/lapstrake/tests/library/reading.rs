//! Arrays are read right, whole and degraded, from files and from readers, and nothing is written.

use crate::support::{CHUNK, Kind, Rig, WORN_OUT, kinds, panics, raid5, without};
use lapstrake::{Array, IoError, Level};
use std::io::{self, BufReader, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;

/// Ranges that begin and end in odd places, over blocks, chunks and requests.
fn ranges(len: u64) -> Vec<(u64, usize)> {
    let mut ranges =
        vec![(0, 0), (0, 1), (511, 2), (1, 4096), (CHUNK - 3, 7), (len, 0), (len - 1, 1)];
    ranges.push((CHUNK * 2 + 513, (1 << 20) + 4097));
    ranges.push((3, len as usize - 5));
    ranges
}

fn assert_reads(array: &Array, contents: &[u8], what: &str) {
    assert_eq!(array.len(), contents.len() as u64, "{what}");
    for (offset, len) in ranges(array.len()) {
        let mut buf = vec![0xee; len];
        array.read_at(offset, &mut buf).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(buf == contents[offset as usize..][..len], "{what}: {len} bytes at {offset}");
    }
}

#[test]
fn every_level_reads_what_was_written_without_what_it_can_do_without() {
    for kind in kinds() {
        let rig = Rig::full(kind);
        let before = rig.images(&rig.members);
        for left in without(&rig.members, kind.spared) {
            let what = format!("{kind:?} of {left:?}");
            let array = Array::open_read_only(&left).unwrap();
            assert_eq!(array.is_degraded(), left.len() < kind.members, "{what}");
            assert_eq!((array.level(), array.name()), (kind.level, "data"));
            assert_reads(&array, &rig.contents, &what);
            array.close().unwrap();
            let images = rig.images(&left).into_iter();
            let array = Array::open_readers(images.map(|(name, image)| (name, Cursor::new(image))));
            assert_reads(&array.unwrap(), &rig.contents, &what);
        }
        assert!(rig.images(&rig.members) == before, "{kind:?}: something was written");
    }
}

#[test]
fn an_array_is_a_reader_with_a_place() {
    let rig = Rig::full(raid5());
    let mut array = Array::open_read_only(&rig.members[..2]).unwrap();
    let mut all = Vec::new();
    BufReader::with_capacity(1000, &mut array).read_to_end(&mut all).unwrap();
    assert!(all == rig.contents);
    assert_eq!(array.read(&mut [0; 10]).unwrap(), 0, "at the end");

    let len = array.len();
    assert_eq!(array.seek(SeekFrom::End(-7)).unwrap(), len - 7);
    let mut tail = Vec::new();
    array.read_to_end(&mut tail).unwrap();
    assert_eq!(tail, rig.contents[rig.contents.len() - 7..]);
    assert_eq!(array.seek(SeekFrom::Current(-10)).unwrap(), len - 10);
    assert_eq!(array.seek(SeekFrom::Start(len + 5)).unwrap(), len + 5);
    assert_eq!(array.read(&mut [0; 10]).unwrap(), 0, "beyond the end");
    let before = array.seek(SeekFrom::Current(-(len as i64) - 6)).unwrap_err();
    assert_eq!(before.kind(), ErrorKind::InvalidInput);
    assert_eq!(array.stream_position().unwrap(), len + 5, "it stayed");
}

#[test]
fn what_is_not_within_the_array_is_named() {
    let rig = Rig::full(raid5());
    let array = Array::open_read_only(&rig.members).unwrap();
    let size = array.len();
    for (offset, len) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (u64::MAX - 1, 4096)] {
        let beyond = IoError::OutOfRange { offset, len, size };
        assert_eq!(array.read_at(offset, &mut vec![0; len as usize]), Err(beyond));
    }
    assert_eq!(array.write_at(0, b"x"), Err(IoError::ReadOnly));
}

#[test]
fn several_threads_read_at_once() {
    fn may_go_anywhere<T: Send + Sync>() {}
    may_go_anywhere::<Array>();
    let rig = Rig::full(raid5());
    let array = Array::open_read_only(&rig.members[1..]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (array, contents) = (&array, &rig.contents);
            scope.spawn(move || {
                for turn in 0..50 {
                    let offset = (thread * 12_345 + turn * 99_991) % (contents.len() - 5000);
                    let mut buf = vec![0; 5000];
                    array.read_at(offset as u64, &mut buf).unwrap();
                    assert!(buf == contents[offset..][..5000]);
                }
            });
        }
    });
}

/// How a reader goes wrong, within [`UNSOUND`].
#[derive(Clone, Copy, Debug)]
enum Fault {
    Error,
    Panic,
    EarlyEnd,
    TooMuch,
}

struct Faulty {
    image: Cursor<Vec<u8>>,
    /// Not at all.
    is_sound: bool,
    fault: Fault,
}

impl Read for Faulty {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (start, end) = (self.image.position(), self.image.position() + buf.len() as u64);
        if self.is_sound || end <= UNSOUND.start || UNSOUND.end <= start {
            return self.image.read(buf);
        }
        match self.fault {
            Fault::Error => Err(io::Error::other(WORN_OUT)),
            Fault::Panic => std::panic::panic_any(WORN_OUT),
            Fault::EarlyEnd => Ok(0),
            Fault::TooMuch => Ok(buf.len() + 1),
        }
    }
}

impl Seek for Faulty {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.image.seek(to)
    }
}

/// Bytes of a member's data; its superblock and what else may be at its ends are sound.
const UNSOUND: Range<u64> = 3 << 19..(3 << 19) + 8192;

fn with_faults(rig: &Rig, faulty: &[usize], fault: Fault) -> Array {
    let images = rig.images(&rig.members).into_iter().enumerate();
    let reader = |(index, (name, image)): (usize, (String, Vec<u8>))| {
        let is_sound = !faulty.contains(&index);
        (name, Faulty { image: Cursor::new(image), is_sound, fault })
    };
    Array::open_readers(images.map(reader)).unwrap()
}

#[test]
fn a_reader_that_goes_wrong_is_made_up_for_and_told_of_where_nothing_can() {
    panics();
    let raid0 = Kind { level: Level::Raid0, layout: None, members: 3, spared: 0 };
    let (whole, frail) = (Rig::full(raid5()), Rig::full(raid0));
    for fault in [Fault::Error, Fault::Panic, Fault::EarlyEnd, Fault::TooMuch] {
        assert_reads(&with_faults(&whole, &[1], fault), &whole.contents, &format!("{fault:?}"));

        let mut array = with_faults(&frail, &[1], fault);
        let mut buf = vec![0; frail.contents.len()];
        let Err(IoError::Unreadable { offset }) = array.read_at(0, &mut buf) else {
            panic!("{fault:?}: it read what nobody has")
        };
        let offset = offset as usize;
        assert!(offset > 0 && buf[..offset] == frail.contents[..offset], "{fault:?}");
        let mut read = Vec::new();
        let error = array.read_to_end(&mut read).unwrap_err();
        assert!(read == frail.contents[..offset], "{fault:?}: up to there");
        assert!(error.to_string().contains(&format!("at byte {offset}:")), "{error}");
    }
}
