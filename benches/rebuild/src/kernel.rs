//! The same by the kernel's md in User-Mode Linux, on RAM disks.

use crate::array::{Shape, Task};
use lapstrake_geometry::Level;
use lapstrake_kernel_md::{Error, Guest, Kernel as Boot};

const DISK_KIB: u64 = 192 << 10;
/// The first disk that no array is made of.
const SPARES: usize = 6;

/// A guest that is up.
pub struct Kernel {
    guest: Guest,
}

impl Kernel {
    /// Boots it.
    pub fn boot() -> Result<Self, Error> {
        let mut guest = Boot::new().memory_mib(2048).boot()?;
        let script = format!(
            "insmod /lib/modules/extra/brd.ko rd_nr=8 rd_size={DISK_KIB}
             for i in 0 1 2 3 4 5 6 7; do dd if=/dev/zero of=/dev/ram$i bs=1M 2>/dev/null; done; true"
        );
        let out = guest.run(&script)?;
        assert!(out.success(), "{out}");
        Ok(Self { guest })
    }

    /// Bytes that are used of each member a second, the better of the stripe caches 256 and 8192 (a reshape of large chunks
    /// gets what it needs).
    pub fn run(&mut self, shape: &Shape) -> Result<f64, Error> {
        let disks = |numbers: std::ops::Range<usize>| -> String {
            numbers.map(|i| format!("/dev/ram{i} ")).collect()
        };
        let members = disks(0..shape.members);
        let layout = shape.layout.map_or(String::new(), |layout| format!("-p {layout}"));
        let chunk = if shape.level == Level::Raid1 { "" } else { "-c512" };
        let level = shape.level.to_string();
        // What is prepared, what begins it, and until what it has ended.
        let (fresh, prepare, begin, is_done) = match shape.task {
            Task::Rebuild { lost } => (
                disks(SPARES..SPARES + lost),
                format!("echo frozen > sync_action; mdadm /dev/md0 -f {}", disks(0..lost)),
                "echo idle > sync_action".to_owned(),
                "[ $(cat degraded) = 0 ]",
            ),
            Task::Growth => (
                disks(SPARES..SPARES + 1),
                String::new(),
                format!("mdadm --grow /dev/md0 -n{}", shape.disks()),
                "[ $(cat reshape_position) = none ]",
            ),
        };
        let script = format!(
            "for cache in 256 8192; do
               mdadm -CR /dev/md0 -l{} -n{} {layout} {chunk} -b none --assume-clean {members}
               cd /sys/block/md0/md
               echo 100000000 > sync_speed_max; echo 100000000 > sync_speed_min
               [ -e stripe_cache_size ] && echo $cache > stripe_cache_size
               {prepare}
               mdadm /dev/md0 -a {fresh}
               kib=$(cat component_size)
               t=${{EPOCHREALTIME/./}}
               {begin}
               n=0
               until {is_done} || [ $((n += 1)) = 600 ]; do sleep 0.05; done
               {is_done} && echo rate $(( kib * 1024 / (${{EPOCHREALTIME/./}} - t) ))
               cd /; mdadm -S /dev/md0; mdadm --zero-superblock {members} {fresh}
             done 2>/dev/null",
            level.trim_start_matches("raid"),
            shape.members,
        );
        let text = self.guest.run(&script)?.text();
        let rates = text.lines().filter_map(|line| line.strip_prefix("rate ")?.trim().parse().ok());
        // Bytes a microsecond.
        Ok(rates.fold(f64::NAN, f64::max) * 1e6)
    }
}
