//! The kernel's md in User-Mode Linux, on RAM disks, writing full stripes with dd.

use lapstrake_geometry::Level;
use lapstrake_kernel_md::{Guest, Kernel as Boot, available_or_say};
use std::cell::RefCell;

/// A guest that is up.
pub struct Kernel {
    guest: RefCell<Guest>,
}

impl Kernel {
    /// Boots it, or says why not.
    pub fn boot() -> Option<Self> {
        if !available_or_say("full-stripe writes beside the kernel's md") {
            return None;
        }
        let mut guest = Boot::new().memory_mib(2048).boot().expect("the guest boots");
        let disks = "insmod /lib/modules/extra/brd.ko rd_nr=6 rd_size=196608";
        let fill = "for i in 0 1 2 3 4 5; do dd if=/dev/zero of=/dev/ram$i bs=1M count=192; done";
        let out = guest.run(&format!("{disks}; {fill} 2>/dev/null")).expect("the guest answers");
        assert!(out.success(), "{out}");
        Some(Self { guest: RefCell::new(guest) })
    }

    /// MB a second of data, the better of the stripe caches 256 and 8192.
    pub fn full_stripes(&self, level: Level, disks: u16, data: u64, quick: bool) -> f64 {
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
        let out = self.guest.borrow_mut().run(&script).expect("the guest answers");
        let text = out.text();
        // Bytes a microsecond are MB a second.
        text.lines().filter_map(|line| line.trim().parse().ok()).fold(f64::NAN, f64::max)
    }
}
