//! `lapstrake deduce`.

mod text;

use crate::exit::{Exit, Failure, Outcome};
use crate::{options, patience};
use lapstrake_deduce::{BUDGET, Report, Source, deduce};
use lapstrake_device::overlay::remembered;
use lapstrake_device::{Member, MemberSpec, overlaps, parse_map, quoted_path};
use lapstrake_host::scan::Look;
use lapstrake_lab::width;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const HELP: &str = "\
Examples:
  lapstrake deduce disk1.img disk2.img disk3.img
  lapstrake deduce /dev/sd[b-e]3
  lapstrake deduce --sample 16G --json *.img | jq '.candidates[0]'

Exit codes:
  0  one arrangement was found, and nothing else comes near it
  1  a device cannot be opened, or nothing was found that tells how the array was laid out
  2  usage
  3  arrangements were found, but none is sure";

/// Find out level, layout, chunk, order and data offset of an array whose superblocks are gone, from its contents.
///
/// Only reads, and does not believe superblocks: it tells where they differ from what the contents say, as after an
/// `mdadm --create` over an old array. Evidence is what file systems know of their own place (ext2/3/4, XFS, Btrfs, NTFS, FAT, LVM, GPT, LUKS2), parity
/// that comes to zero, and copies that are equal. Each arrangement comes with its probability, what speaks for it, and
/// the commands that serve it through an overlay, so that nothing is written to the devices.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// What is left of the array: devices, images, or windows of them, in any order, without others
    #[arg(required = true, value_name = "DEVICE|IMAGE", value_parser = options::member())]
    devices: Vec<MemberSpec>,
    /// What the map file of GNU ddrescue does not call rescued is no evidence, rather than zeros; may be repeated
    #[arg(long, value_name = "IMAGE=MAP", value_parser = options::image_and_map())]
    ddrescue_map: Vec<(PathBuf, PathBuf)>,
    /// How much to read of each device, spread over it; holes of images count as nothing
    #[arg(long, value_name = "SIZE", default_value_t = BUDGET, hide_default_value = true, value_parser = options::bytes)]
    sample: u64,
    /// How many arrangements to print
    #[arg(long, value_name = "N", default_value_t = 3)]
    candidates: usize,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

/// A device as the analysis reads it.
struct Device(Member);

impl Source for Device {
    fn size(&self) -> u64 {
        self.0.size() / 512 * 512
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn lacks(&self, offset: u64, length: u64) -> bool {
        self.0.lacks(offset, length)
    }

    fn next_data(&self, offset: u64) -> Option<u64> {
        // What cannot tell its holes has none.
        self.0.next_data(offset).unwrap_or(Some(offset).filter(|at| *at < self.0.size()))
    }
}

pub fn run(args: &Args) -> Outcome {
    let devices = patience::telling(&args.devices, || open(&args.devices))?;
    let devices = with_maps(devices, &args.ddrescue_map)?;
    if let Some((first, second)) = overlapping(&devices) {
        let (first, second) = (first.spec(), second.spec());
        return Err(Failure::usage(format!(
            "{first} and {second} share bytes of one file or device; no contents were read: name each member once"
        )));
    }
    let sources: Vec<&dyn Source> = devices.iter().map(|device| device as &dyn Source).collect();
    let looks: Vec<Option<Look>> =
        args.devices.iter().map(|spec| patience::look(spec).ok()).collect();
    let mut progress = Progress::new();
    let report = deduce(&sources, args.sample, |done, all| progress.tell(done, all));
    progress.end();
    let summary = text::Summary {
        devices: &args.devices,
        maps: &args.ddrescue_map,
        looks: &looks,
        report: &report,
    };
    if args.json {
        outln!("{:#}", summary.json());
    } else {
        out!("{}", width::fitted(&summary.text(args.candidates)));
    }
    Ok(exit(&report))
}

fn exit(report: &Report) -> Exit {
    match report.candidates.first() {
        None => Exit::Failed,
        Some(first) if first.is_certain => Exit::Done,
        Some(_) => Exit::Degraded,
    }
}

/// Two that share a byte, as one disk under two names does: they would pass for copies of each other.
fn overlapping(devices: &[Device]) -> Option<(&Member, &Member)> {
    devices.iter().enumerate().find_map(|(index, Device(second))| {
        let first = devices[..index].iter().find(|Device(first)| overlaps(first, second))?;
        Some((&first.0, second))
    })
}

/// Opens all, or tells all that cannot be opened.
fn open(devices: &[MemberSpec]) -> Result<Vec<Device>, Failure> {
    let (mut opened, mut failed) = (Vec::new(), Vec::new());
    for spec in devices {
        match Member::peek(spec) {
            Ok(member) => match no_image(&member) {
                None => opened.push(Device(member)),
                Some(what) => {
                    failed.push(format!("{spec}: {what}; nothing was read of the others"))
                }
            },
            Err(error) => failed.push(error.to_string()),
        }
    }
    match failed.is_empty() {
        true => Ok(opened),
        false => Err(Failure::new(failed.join("\n"))),
    }
}

/// Files that lie beside images, and would count as blank ones.
fn no_image(member: &Member) -> Option<String> {
    let path = &member.spec().path;
    if !remembered(path).is_empty() {
        return Some(
            "it is the file of an overlay, which holds only what was written over its members: name these".into(),
        );
    }
    let mut head = vec![0; member.size().min(4096) as usize];
    member.read_at(0, &mut head).ok()?;
    let is_text = !head.is_empty() && std::str::from_utf8(&head).is_ok() && !head.contains(&0);
    if is_text && is_map(path) {
        let map = quoted_path(path.as_os_str());
        return Some(format!(
            "it is a map file of ddrescue: name it as --ddrescue-map IMAGE={map}"
        ));
    }
    if is_text || !member.size().is_multiple_of(512) {
        let (bytes, kind) = (member.size(), if is_text { "text" } else { "no whole sectors" });
        return Some(format!("it is no image: its {bytes} bytes are {kind}"));
    }
    None
}

fn is_map(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| parse_map(&text).is_ok())
}

/// Devices that lack what the map files of their images say.
fn with_maps(
    mut devices: Vec<Device>,
    maps: &[(PathBuf, PathBuf)],
) -> Result<Vec<Device>, Failure> {
    for (image, map) in maps {
        let bad =
            |why: String| Failure::new(format!("{}: {why}; no contents were read", map.display()));
        let text = std::fs::read_to_string(map).map_err(|error| bad(error.to_string()))?;
        let ranges = parse_map(&text).map_err(|error| bad(error.to_string()))?;
        let is_own = |device: &Device| device.0.spec().path == *image;
        if !devices.iter().any(is_own) {
            return Err(bad(format!("{} is the path of no device", image.display())));
        }
        let with = |device: Device| match is_own(&device) {
            true => Device(device.0.with_unread(&ranges)),
            false => device,
        };
        devices = devices.into_iter().map(with).collect();
    }
    Ok(devices)
}

/// A line on the terminal that tells how far it is.
struct Progress {
    is_shown: bool,
    told: Instant,
}

impl Progress {
    const EVERY: Duration = Duration::from_millis(200);

    fn new() -> Self {
        Self { is_shown: io::stderr().is_terminal(), told: Instant::now() }
    }

    fn tell(&mut self, done: u64, all: u64) {
        if !self.is_shown || self.told.elapsed() < Self::EVERY {
            return;
        }
        self.told = Instant::now();
        let (percent, mib) = (100.0 * done as f64 / all.max(1) as f64, done >> 20);
        self.write(&format!("\r{percent:5.1} %  {mib} of {} MiB looked at ", all >> 20));
    }

    fn end(&self) {
        if self.is_shown {
            self.write("\r\x1b[K");
        }
    }

    /// A terminal that is gone shows no progress, and that is all.
    fn write(&self, line: &str) {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}
