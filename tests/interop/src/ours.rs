//! Lapstrake's side: makes, opens, serves, reads and writes arrays through the same calls as the
//! command.

use std::fs;
use std::ops::Range;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;

use lapstrake_device::MemberSpec;
use lapstrake_export::{NbdSession, nbd};
use lapstrake_geometry::{Geometry, Slot};
use lapstrake_host::create::{NewArray, NewBitmap, prepare};
use lapstrake_host::{Array, MemberState, OpenRequest, Opened, Options};
use lapstrake_metadata::assemble::{Reason, Verdict};

use crate::Failure;
use crate::case::Case;
use crate::draw::Draw;
use crate::nbd::{Client, Request};
use crate::shape::Shape;

const SECTOR: u64 = 512;
const PAGE: usize = 4096;
/// Enough for the requests that are kept in flight.
const BUFFER_BYTES: usize = 4 << 20;
const DEPTH: usize = 12;

/// Makes an array of these files.
pub fn create(case: &Case, shape: &Shape, files: &[PathBuf]) -> Result<(), Failure> {
    let members = files.iter().map(|file| Some(MemberSpec::whole(file)));
    let wanted = NewArray {
        version: case.version,
        chunk: (!case.chunk.is_zero()).then_some(case.chunk),
        layout: Some(case.layout),
        bitmap: if shape.bitmap.is_some() { NewBitmap::Internal } else { NewBitmap::None },
        bitmap_chunk: shape.bitmap,
        assume_clean: !shape.resync,
        ..NewArray::new("interop", case.level, members.collect())
    };
    let mut draw = Draw::new(case.seed());
    prepare(&wanted, |bytes| draw.fill(bytes))?.write()?;
    Ok(())
}

/// How to open an array.
#[derive(Clone, Copy)]
pub struct How {
    pub read_only: bool,
    /// Members may be missing that it does not know to be missing.
    pub degraded: bool,
    /// Superblocks say clean again soon after the last write; otherwise not before the stop.
    pub rests: bool,
}

pub const READ: How = How { read_only: true, degraded: false, rests: true };
pub const READ_DEGRADED: How = How { degraded: true, ..READ };
pub const WRITE: How = How { read_only: false, ..READ };
pub const WRITE_DEGRADED: How = How { degraded: true, ..WRITE };
pub const WRITE_WITHOUT_REST: How = How { rests: false, ..WRITE };

/// Whether the kernel runs a RAID10 of these slots: it wants a copy of every chunk that there could be, even of those
/// that an array of a few chunks has not.
fn kernel_runs(geometry: &Geometry, present: impl Fn(Slot) -> bool) -> bool {
    let Geometry::Raid10(raid10) = geometry else { return true };
    let (disks, copies) = (u32::from(raid10.raid_disks()), raid10.layout().copies());
    let has_copy = |first| (first..first + copies).any(|slot| present(Slot((slot % disks) as u16)));
    (0..disks).map(|window| window * copies % disks).all(has_copy)
}

/// A running array.
pub struct Ours {
    array: Array,
    /// The lines of its events.
    said: NamedTempFile,
    geometry: Geometry,
    /// What was decided about each file, in the order given.
    verdicts: Vec<(Verdict, String)>,
}

impl Ours {
    /// Opens and starts the array of these files.
    pub fn start(files: &[&Path], how: How, shape: &Shape) -> Result<Self, Failure> {
        let request = OpenRequest {
            members: files.iter().map(MemberSpec::whole).collect(),
            read_only: how.read_only,
            degraded: how.degraded,
            ..OpenRequest::default()
        };
        let Opened { parts, report, .. } = lapstrake_host::open(&request)?;
        let geometry = parts.plan.geometry.clone();
        let lines = report.into_iter().map(|line| line.verdict);
        let verdicts = parts.plan.assembly.verdicts.clone();
        let verdicts = verdicts.into_iter().map(|(_, verdict)| verdict).zip(lines);
        let said = NamedTempFile::new()?;
        let lines = tracing_subscriber::fmt().with_writer(said.reopen()?);
        let safe_mode_delay_ms = if how.rests { Options::default().safe_mode_delay_ms } else { 0 };
        let options = Options {
            safe_mode_delay_ms,
            read_only: how.read_only,
            shards: shape.shards,
            stripe_cache_size: shape.stripe_cache_size,
            buffer_bytes: BUFFER_BYTES,
            ..Options::default()
        };
        let start = || Array::start(parts, &options);
        let array = tracing::subscriber::with_default(lines.finish(), start)?;
        Ok(Self { array, said, geometry, verdicts: verdicts.collect() })
    }

    pub fn bytes(&self) -> u64 {
        self.array.bytes()
    }

    /// Every set of files, by index, but the empty one, that the array can miss here and in the kernel. (The
    /// kernel gives a member that comes back whatever slot is free, so files may be in any order.)
    pub fn survivable(&self) -> Vec<Vec<usize>> {
        let slots: Vec<Option<Slot>> = self
            .verdicts
            .iter()
            .map(|(verdict, _)| match verdict {
                Verdict::Taken { slot, .. } => Some(*slot),
                _ => None,
            })
            .collect();
        let has = |set: usize, index: usize| set >> index & 1 == 1;
        let left = |set: usize, slot: Slot| {
            slots.iter().enumerate().any(|(index, s)| *s == Some(slot) && !has(set, index))
        };
        (1..1 << slots.len())
            .filter(|set| self.geometry.survives(|slot| left(*set, slot)))
            .filter(|set| kernel_runs(&self.geometry, |slot| left(*set, slot)))
            .map(|set| (0..slots.len()).filter(|index| has(set, *index)).collect())
            .collect()
    }

    /// Which of the files, by index, were left because they are out of date; an error if one was
    /// left for another reason.
    pub fn stale(&self) -> Result<Vec<usize>, Failure> {
        let mut stale = Vec::new();
        for (index, (verdict, line)) in self.verdicts.iter().enumerate() {
            match verdict {
                Verdict::Left(Reason::Stale { .. }) => stale.push(index),
                Verdict::Left(_) => return Err(format!("member {index} is {line}").into()),
                _ => {}
            }
        }
        Ok(stale)
    }

    /// Which of the files, by index, are members under recovery.
    pub fn recovering(&self) -> Vec<usize> {
        let verdicts = self.verdicts.iter().enumerate();
        let under = verdicts.filter(|(_, (verdict, _))| {
            matches!(verdict, Verdict::Taken { recovering: Some(_), .. })
        });
        under.map(|(index, _)| index).collect()
    }

    /// Reads everything, in pieces of random lengths.
    pub fn read_all(&self, draw: &mut Draw) -> Result<Vec<u8>, Failure> {
        let total = self.bytes() as usize;
        let mut pages = vec![Page([0; PAGE]); total.div_ceil(PAGE)];
        let mut bytes = Vec::with_capacity(total);
        let array = self.array.handle().array_io();
        for cut in draw.cuts(self.bytes() / SECTOR) {
            let (offset, len) = (cut.start * SECTOR, (cut.end - cut.start) * SECTOR);
            let memory = pages.as_mut_ptr().cast::<u8>();
            // SAFETY: the memory is page-aligned, at least as long as the array, and nothing
            // else touches it until the answer is received.
            let answer = unsafe { array.read(memory, offset, len) };
            answer.recv()?.map_err(|error| format!("read of {len} at {offset}: {error}"))?;
            let end = bytes.len() + len as usize;
            for page in &pages[..(len as usize).div_ceil(PAGE)] {
                bytes.extend_from_slice(&page.0);
            }
            bytes.truncate(end);
        }
        Ok(bytes)
    }

    /// Stops the array; an error if it could not be left clean.
    pub fn stop(self) -> Result<(), Failure> {
        if self.array.stop() {
            return Ok(());
        }
        let said = std::fs::read_to_string(self.said.path())?;
        Err(format!("the array did not stop clean; it said:\n{said}").into())
    }

    /// Serves the array over NBD to one customer, and stops it.
    pub fn serve(
        self,
        socket: &Path,
        customer: impl FnOnce(&mut Client) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let info = nbd::ExportInfo::new("", self.bytes());
        let exports = Arc::new(nbd::Exports::new(vec![info])?);
        let listener = UnixListener::bind(socket)?;
        let limits = nbd::Limits::default();
        let greet = move |fd| -> Box<dyn lapstrake_host::Client> {
            Box::new(NbdSession::new(fd, exports.clone(), limits))
        };
        self.array.handle().listen(listener.into(), Box::new(greet));
        let mut client = Client::connect(socket)?;
        fs::remove_file(socket)?;
        if client.size() != self.bytes() {
            return Err(format!("the export has {} bytes", client.size()).into());
        }
        let outcome = customer(&mut client).and_then(|()| client.disconnect());
        let detail = self.array.handle().detail();
        let stopped = self.stop();
        outcome.and(stopped)?;
        let members = detail.ok_or("the array stopped by itself")?.members;
        match members.iter().find(|member| member.state == MemberState::Faulty) {
            Some(member) => Err(format!("{} failed meanwhile", member.path).into()),
            None => Ok(()),
        }
    }
}

/// Memory as requests want it.
#[derive(Clone, Copy)]
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// Fills the export with `image` in pieces of random lengths and order.
pub fn fill(client: &mut Client, image: &[u8], draw: &mut Draw) -> Result<(), Failure> {
    let mut cuts = draw.cuts(image.len() as u64 / SECTOR);
    draw.shuffle(&mut cuts);
    let requests: Vec<_> = cuts.into_iter().map(|cut| write(image, cut, draw)).collect();
    client.submit(&requests, DEPTH)
}

/// Writes these runs of sectors of `image` to their places.
pub fn write_parts(client: &mut Client, image: &[u8], parts: &[Range<u64>]) -> Result<(), Failure> {
    let part = |part: &Range<u64>| {
        let (offset, end) = (part.start * SECTOR, part.end * SECTOR);
        Request::Write { offset, bytes: &image[offset as usize..end as usize], fua: false }
    };
    client.submit(&parts.iter().map(part).collect::<Vec<_>>(), DEPTH)
}

/// Writes `count` times at random, mostly bytes and sometimes zeros, and into `image` too.
///
/// Requests overlap while they are in flight: the array keeps their order.
pub fn scribble(
    client: &mut Client,
    image: &mut [u8],
    count: usize,
    draw: &mut Draw,
) -> Result<(), Failure> {
    let sectors = image.len() as u64 / SECTOR;
    let mut news = Vec::new();
    for _ in 0..count {
        let start = draw.within(0..sectors);
        let len = draw.length(sectors - start);
        let zeroes = draw.once_in(8);
        let bytes =
            if zeroes { vec![0; (len * SECTOR) as usize] } else { draw.bytes(len * SECTOR) };
        let offset = start * SECTOR;
        image[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        news.push((zeroes, offset, bytes));
    }
    let mut requests = Vec::new();
    for (zeroes, offset, bytes) in &news {
        requests.push(match zeroes {
            true => Request::Zeroes { offset: *offset, len: bytes.len() as u32 },
            false => Request::Write { offset: *offset, bytes, fua: draw.once_in(16) },
        });
        if draw.once_in(16) {
            requests.push(Request::Flush);
        }
    }
    client.submit(&requests, DEPTH)
}

/// Compares the export with `image`.
pub fn verify(client: &mut Client, image: &[u8], draw: &mut Draw) -> Result<(), Failure> {
    let cuts = draw.cuts(image.len() as u64 / SECTOR);
    let bytes = |cut: &Range<u64>| cut.start * SECTOR..cut.end * SECTOR;
    let ranges: Vec<_> = cuts.iter().map(bytes).collect();
    let mut read = vec![0; image.len()];
    client.read(&ranges, DEPTH, &mut read)?;
    same(&read, image)
}

/// An error that tells where the two differ.
pub fn same(found: &[u8], expected: &[u8]) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    if found.len() != expected.len() {
        return Err(format!("{} bytes, expected {}", found.len(), expected.len()).into());
    }
    let pairs = found.chunks(512).zip(expected.chunks(512)).enumerate();
    let differing: Vec<usize> = pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect();
    let first = &differing[..differing.len().min(8)];
    Err(format!("{} sectors differ, the first are array sectors {first:?}", differing.len()).into())
}

fn write<'a>(image: &'a [u8], cut: Range<u64>, draw: &mut Draw) -> Request<'a> {
    let (offset, end) = (cut.start * SECTOR, cut.end * SECTOR);
    Request::Write { offset, bytes: &image[offset as usize..end as usize], fua: draw.once_in(32) }
}
