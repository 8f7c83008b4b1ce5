//! What a result depends on besides the plan: the machine, its disks, the programs' versions.

use crate::plan::{DiskPlace, Plan};
use crate::record::{Device, Facts};
use crate::subject::guard::serial;
use crate::subject::obstacle::{find_program, is_root};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Queue settings that are kept.
const QUEUE: [&str; 12] = [
    "rotational",
    "nr_requests",
    "read_ahead_kb",
    "max_sectors_kb",
    "max_hw_sectors_kb",
    "logical_block_size",
    "physical_block_size",
    "minimum_io_size",
    "optimal_io_size",
    "write_cache",
    "nomerges",
    "rq_affinity",
];

/// Programs whose versions are kept, with the option that tells it.
const PROGRAMS: [(&str, &str); 9] = [
    ("fio", "--version"),
    ("bonnie++", "-version"),
    ("hdparm", "-V"),
    ("pgbench", "--version"),
    ("mkfs.btrfs", "--version"),
    ("mkfs.ext4", "-V"),
    ("mkfs.xfs", "-V"),
    ("mdadm", "--version"),
    ("zpool", "--version"),
];

/// The facts of this machine.
pub(crate) fn facts(plan: &Plan, work: &Path) -> Facts {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map_or_else(String::new, |(_, text)| text.trim().to_owned())
    };
    let memory = read("/proc/meminfo").lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let mut more = BTreeMap::new();
    more.insert("directory".into(), work.display().to_string());
    more.insert("filesystem of images".into(), filesystem(work));
    more.insert("root".into(), is_root().to_string());
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if !governor.is_empty() {
        more.insert("CPU governor".into(), governor);
    }
    Facts {
        kernel: format!(
            "{} {}",
            read("/proc/sys/kernel/ostype"),
            read("/proc/sys/kernel/osrelease")
        ),
        cpu: field("model name"),
        cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        memory_bytes: memory.unwrap_or(0) << 10,
        versions: versions(),
        devices: plan.disks.iter().map(|disk| device(&disk.name, &disk.place, work)).collect(),
        more,
    }
}

pub(crate) fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    versions.insert("lapstrake".into(), env!("CARGO_PKG_VERSION").into());
    for (program, option) in PROGRAMS {
        let Some(path) = find_program(program) else { continue };
        let output = Command::new(path).arg(option).stdin(Stdio::null()).output();
        let Ok(output) = output else { continue };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line =
            text.lines().map(str::trim).find(|line| line.bytes().any(|b| b.is_ascii_digit()));
        versions.insert(program.into(), line.unwrap_or_default().to_owned());
    }
    versions
}

/// The type of the filesystem on which a path lies, by the longest mount point above it.
fn filesystem(path: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let path = path.ancestors().find_map(|path| path.canonicalize().ok()).unwrap_or_default();
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        path.starts_with(point).then_some((point.len(), kind))
    });
    above.max_by_key(|(len, _)| *len).map_or_else(String::new, |(_, kind)| kind.to_owned())
}

fn device(name: &str, place: &DiskPlace, work: &Path) -> Device {
    match place {
        DiskPlace::Make { bytes } => Device {
            name: name.into(),
            path: work.join(format!("{name}.img")).display().to_string(),
            model: "image file".into(),
            bytes: *bytes,
            ..Device::default()
        },
        DiskPlace::Given { spec, .. } => {
            let file = spec.path.canonicalize().unwrap_or_else(|_| spec.path.clone());
            let sys = file
                .file_name()
                .map(|name| Path::new("/sys/class/block").join(name))
                .unwrap_or_default();
            let read = |place: &str| {
                fs::read_to_string(sys.join(place)).map(|text| text.trim().to_owned()).ok()
            };
            // A partition's queue is its disk's.
            let either = |place: &str| read(place).or_else(|| read(&format!("../{place}")));
            let vendor = either("device/vendor").unwrap_or_default();
            let model = either("device/model").unwrap_or_default();
            let scheduler = either("queue/scheduler").unwrap_or_default();
            let chosen = scheduler.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
            let sectors =
                read("size").and_then(|text| text.parse::<u64>().ok()).map(|sectors| sectors * 512);
            let whole =
                sectors.or_else(|| fs::metadata(&file).map(|meta| meta.len()).ok()).unwrap_or(0);
            let queue = QUEUE
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), either(&format!("queue/{key}"))?)));
            Device {
                name: name.into(),
                path: spec.to_string(),
                model: format!("{vendor} {model}").trim().to_owned(),
                serial: serial(&spec.path).unwrap_or_default(),
                bytes: spec.size.unwrap_or(whole.saturating_sub(spec.offset)),
                scheduler: chosen.map_or(scheduler.clone(), |(name, _)| name.to_owned()),
                queue: queue.collect(),
            }
        }
    }
}
