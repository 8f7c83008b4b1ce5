//! What a load costs: processor time, members' I/O and memory, as differences between two moments.

use crate::record::{Cpu, CpuTime, Figure, MemberIo, Phase};
use crate::workload::recorder::Recorded;
use lapstrake_control::{Detail, MemberWork};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// From where to read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Servers, by process.
    pub servers: Vec<u32>,
    /// Members as block devices.
    pub devices: Vec<(String, PathBuf)>,
    /// The plan's names of members that are files, by the files.
    pub files: Vec<(String, PathBuf)>,
    /// The control directory of the array's server.
    pub control: Option<PathBuf>,
}

/// An array's own counts, since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// By their files.
    pub members: Vec<(PathBuf, MemberWork)>,
    /// Of its memory for requests and stripe cache.
    pub memory_bytes: u64,
}

/// A member's name, and its device's counts.
type DeviceCounts = (String, [u64; 11]);

/// All counts at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    at: Instant,
    machine: CpuTime,
    processes: BTreeMap<String, CpuTime>,
    devices: Vec<DeviceCounts>,
    /// By the members' names.
    work: Vec<(String, MemberWork)>,
    memory: Option<u64>,
}

/// What happened between two readings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Costs {
    pub cpu: Cpu,
    pub members: Vec<MemberIo>,
    pub memory_bytes_max: Option<u64>,
}

impl Costs {
    /// The phase that they are of.
    pub(crate) fn phase(
        self,
        name: &str,
        figure: Figure,
        seconds: f64,
        recorded: Recorded,
    ) -> Phase {
        Phase {
            read: recorded.read,
            write: recorded.write,
            series: recorded.series,
            cpu: self.cpu,
            members: self.members,
            memory_bytes_max: self.memory_bytes_max,
            ..Phase::new(name, figure.value, figure.unit, seconds)
        }
    }
}

impl Sources {
    /// Reads all counts. `own` are those of an array in this process.
    pub(crate) fn read(&self, own: Option<Work>) -> Reading {
        let mut processes = BTreeMap::new();
        processes.insert("lab".to_owned(), usage(libc::RUSAGE_SELF));
        processes.insert("programs".to_owned(), usage(libc::RUSAGE_CHILDREN));
        let mut served = CpuTime::default();
        for server in &self.servers {
            let time = process_time(*server);
            served.user_s += time.user_s;
            served.system_s += time.system_s;
        }
        if !self.servers.is_empty() {
            processes.insert("lapstrake serve".to_owned(), served);
        }
        let peak = |pid: &u32| status_kib(*pid, "VmHWM:");
        let served_memory: Option<u64> = self.servers.iter().map(peak).sum();
        let memory = served_memory.filter(|_| !self.servers.is_empty()).map(|kib| kib << 10);
        let memory = memory.or(own.as_ref().map(|work| work.memory_bytes));
        let work = own.or_else(|| self.control.as_deref().and_then(served_work));
        Reading {
            at: Instant::now(),
            machine: machine_time(),
            processes,
            devices: self
                .devices
                .iter()
                .map(|(name, path)| (name.clone(), device_counts(path)))
                .collect(),
            work: work.map_or_else(Vec::new, |work| self.named(work)),
            memory,
        }
    }

    fn named(&self, work: Work) -> Vec<(String, MemberWork)> {
        let name = |file: &Path| {
            let known = self.files.iter().find(|(_, other)| other == file);
            known.map_or_else(|| file.display().to_string(), |(name, _)| name.clone())
        };
        work.members.into_iter().map(|(file, work)| (name(&file), work)).collect()
    }
}

impl Reading {
    /// What happened since an earlier one.
    pub(crate) fn since(&self, before: &Self) -> Costs {
        let less = |now: CpuTime, then: CpuTime| CpuTime {
            user_s: (now.user_s - then.user_s).max(0.0),
            system_s: (now.system_s - then.system_s).max(0.0),
        };
        let machine = less(self.machine, before.machine);
        let processes = self.processes.iter().map(|(name, now)| {
            (name.clone(), less(*now, before.processes.get(name).copied().unwrap_or_default()))
        });
        let elapsed_ms = (self.at - before.at).as_secs_f64() * 1e3;
        Costs {
            cpu: Cpu {
                user_s: machine.user_s,
                system_s: machine.system_s,
                processes: processes.collect(),
            },
            members: self.members(before, elapsed_ms),
            memory_bytes_max: self.memory,
        }
    }

    fn members(&self, before: &Self, elapsed_ms: f64) -> Vec<MemberIo> {
        // The kernel knows more of members that are devices.
        if self.devices.is_empty() {
            return self.sent(before);
        }
        let of = |((name, now), (_, then)): (&DeviceCounts, &DeviceCounts)| {
            let more = |field: usize| now[field].saturating_sub(then[field]);
            MemberIo {
                member: name.clone(),
                read_requests: more(0),
                read_bytes: more(2) * 512,
                write_requests: more(4),
                written_bytes: more(6) * 512,
                // Milliseconds of all requests under way, over the time.
                queue_depth: (elapsed_ms > 0.0).then(|| more(10) as f64 / elapsed_ms),
                ..MemberIo::default()
            }
        };
        self.devices.iter().zip(&before.devices).map(of).collect()
    }
}

impl Reading {
    /// What an array sent to members that the kernel does not count. One that was taken in meanwhile had nothing before.
    fn sent(&self, before: &Self) -> Vec<MemberIo> {
        let then = |name: &str| {
            let found = before.work.iter().find(|(other, _)| other == name);
            found.map_or_else(MemberWork::default, |(_, work)| *work)
        };
        let of = |(name, now): &(String, MemberWork)| {
            let then = then(name);
            MemberIo {
                member: name.clone(),
                read_bytes: now.read_bytes - then.read_bytes,
                read_requests: now.reads - then.reads,
                written_bytes: now.written_bytes - then.written_bytes,
                write_requests: now.writes - then.writes,
                ..MemberIo::default()
            }
        };
        self.work.iter().map(of).collect()
    }
}

/// The fields of a block device's `stat` (kernel: Documentation/block/stat.rst).
fn device_counts(path: &Path) -> [u64; 11] {
    let mut counts = [0; 11];
    let device = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(name) = device.file_name() else { return counts };
    let text = fs::read_to_string(Path::new("/sys/class/block").join(name).join("stat"))
        .unwrap_or_default();
    for (count, word) in counts.iter_mut().zip(text.split_whitespace()) {
        *count = word.parse().unwrap_or(0);
    }
    counts
}

/// Ticks of /proc are of 10 ms on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

fn machine_time() -> CpuTime {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> =
        line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    let field = |i: usize| ticks.get(i).copied().unwrap_or(0.0) / TICKS_PER_SECOND;
    // user, nice; system, irq, softirq.
    CpuTime { user_s: field(0) + field(1), system_s: field(2) + field(5) + field(6) }
}

fn process_time(pid: u32) -> CpuTime {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Fields 14 and 15, counted after the name, which may hold blanks.
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |i: usize| fields.get(i).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    CpuTime { user_s: field(11) / TICKS_PER_SECOND, system_s: field(12) / TICKS_PER_SECOND }
}

/// Of this process, or of those that it has started and waited for.
fn usage(whose: libc::c_int) -> CpuTime {
    // SAFETY: all zeros is a valid rusage, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    CpuTime { user_s: seconds(usage.ru_utime), system_s: seconds(usage.ru_stime) }
}

fn status_kib(pid: u32, field: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
}

/// All that a server tells about its array.
pub(crate) fn served_detail(control: &Path) -> Option<Detail> {
    lapstrake_host::control::ask_detail(control, "lab", None).ok()
}

/// What an array has sent to its members.
pub(crate) fn members_work(detail: &Detail) -> Vec<(PathBuf, MemberWork)> {
    detail.members.iter().map(|member| (member.file.clone(), member.work)).collect()
}

fn served_work(control: &Path) -> Option<Work> {
    Some(Work { members: members_work(&served_detail(control)?), memory_bytes: 0 })
}

/// Takes a reading `after` some time on a thread of its own; the caller has it when it joins.
pub(crate) fn later<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    after: Duration,
    read: impl FnOnce() -> Reading + Send + 'scope,
) -> std::thread::ScopedJoinHandle<'scope, Reading> {
    scope.spawn(move || {
        std::thread::sleep(after);
        read()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_this_process_spends_is_counted() {
        let sources = Sources::default();
        let before = sources.read(None);
        let began = Instant::now();
        let mut sum = 0u64;
        let spent = |time: CpuTime| time.user_s + time.system_s;
        while spent(usage(libc::RUSAGE_SELF)) < spent(before.processes["lab"]) + 0.05
            && began.elapsed() < Duration::from_secs(20)
        {
            sum = sum.wrapping_add(1);
        }
        let costs = sources.read(None).since(&before);
        let own = costs.cpu.processes["lab"];
        assert!(own.user_s + own.system_s >= 0.05, "{own:?} {sum}");
        assert!(costs.members.is_empty() && costs.memory_bytes_max.is_none());
    }

    #[test]
    fn an_arrays_counts_are_differences() {
        let files = vec![("a".into(), "/w/a.img".into())];
        let sources = Sources { files, ..Sources::default() };
        let work = |reads, others| {
            let of = |reads| MemberWork { reads, read_bytes: reads * 4096, ..Default::default() };
            let members = vec![("/w/a.img".into(), of(reads)), ("/w/odd".into(), of(others))];
            Work { members, memory_bytes: 77 }
        };
        let before = sources.read(Some(work(10, 1)));
        let costs = sources.read(Some(work(25, 3))).since(&before);
        let told: Vec<(&str, u64, u64)> = costs
            .members
            .iter()
            .map(|member| (&*member.member, member.read_requests, member.read_bytes))
            .collect();
        assert_eq!(told, [("a", 15, 15 * 4096), ("/w/odd", 2, 2 * 4096)]);
        assert_eq!(costs.memory_bytes_max, Some(77));
    }
}
