//! The kernel's md in User-Mode Linux, on RAM disks, writing full stripes with dd.

use lapstrake_geometry::Level;
use lapstrake_kernel_md::{Error, Guest, Kernel as Boot};

/// A guest that is up.
pub struct Kernel {
    guest: Guest,
}

impl Kernel {
    /// Boots it, with small disks for a look.
    pub fn boot(quick: bool) -> Result<Self, Error> {
        let (memory, disk) = if quick { (640, 32) } else { (2048, 192) };
        let mut guest = Boot::new().memory_mib(memory).boot()?;
        let disks = format!("insmod /lib/modules/extra/brd.ko rd_nr=6 rd_size={}", disk << 10);
        let fill =
            format!("for i in {{0..5}}; do dd if=/dev/zero of=/dev/ram$i bs=1M count={disk}; done");
        let out = guest.run(&format!("{disks}; {fill} 2>/dev/null"))?;
        assert!(out.success(), "{out}");
        Ok(Self { guest })
    }

    /// MB a second of data, the better of the stripe caches 256 and 8192.
    pub fn full_stripes(
        &mut self,
        level: Level,
        disks: u16,
        data: u64,
        quick: bool,
    ) -> Result<f64, Error> {
        let members: Vec<String> = (0..disks).map(|i| format!("/dev/ram{i}")).collect();
        let members = members.join(" ");
        let count: u64 = if quick { 40 } else { 110 };
        let bytes = data * 512 * 1024 * count;
        let write = format!(
            "t=${{EPOCHREALTIME/./}}
             dd if=/dev/zero of=/dev/md0 oflag=direct bs={}K count={count} 2>/dev/null
             echo $(({bytes} / (${{EPOCHREALTIME/./}} - t)))",
            data * 512
        );
        let script = format!(
            "mdadm -CR /dev/md0 -l{} -n{disks} -c512 --assume-clean {members} >/dev/null 2>&1
             for cache in 256 8192; do
               echo $cache > /sys/block/md0/md/stripe_cache_size
               for run in 1 2; do {write}; done
             done
             mdadm -S /dev/md0 2>/dev/null",
            level.to_string().trim_start_matches("raid"),
        );
        let text = self.guest.run(&script)?.text();
        // Bytes a microsecond are MB a second.
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).fold(f64::NAN, f64::max))
    }
}
