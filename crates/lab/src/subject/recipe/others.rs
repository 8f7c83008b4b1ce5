//! What others make of disks: the kernel's md, btrfs, ZFS.

use super::{Builder, Built, Target, text, words};
use crate::plan::{Array, Leg, Prepare};
use crate::record::State;
use lapstrake_geometry::Level;

/// Bytes of an array's name in its superblock.
const MD_NAME_MAX: usize = 32;

impl Builder<'_> {
    pub(super) fn md(&mut self, array: &Array, state: &State) -> Built {
        let (out, spare) = match state {
            State::Healthy => (&[][..], false),
            State::Degraded(names) => (&names[..], false),
            State::Rebuilding(names) => (&names[..], true),
        };
        let shape = &array.shape;
        let device = format!("/dev/md/{}", self.name_among_others());
        let level = shape.level.map_or("", Level::name);
        let mut command =
            words(&["mdadm", "--create", &device, "--run", "--homehost=none", "--level", level]);
        command.extend(words(&["--raid-devices", &array.members.len().to_string()]));
        let options = [
            ("--layout", shape.layout.clone()),
            ("--chunk", shape.chunk.map(|bytes| (bytes >> 10).to_string())),
            ("--metadata", shape.metadata.map(|version| version.to_string())),
            ("--bitmap", shape.bitmap.clone()),
            ("--bitmap-chunk", shape.bitmap_chunk.map(|bytes| (bytes >> 10).to_string())),
        ];
        for (option, value) in options {
            command.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        let redundant = shape.level.is_some_and(Level::has_redundancy);
        let clean = self.is_zero(array) || self.plan.rules.prepare == Prepare::AssumeClean;
        if redundant && clean {
            command.push("--assume-clean".into());
        }
        let (mut slots, mut spares) = (Vec::new(), Vec::new());
        for leg in &array.members {
            let is_out = out.iter().any(|name| leg.name() == name);
            match leg {
                Leg::Disk(disk) if !is_out => slots.push(self.block_device(disk)),
                Leg::Disk(disk) if spare => {
                    slots.push("missing".into());
                    spares.push(self.block_device(disk));
                }
                _ => slots.push("missing".into()),
            }
        }
        command.extend(slots);
        self.run_undo(command, words(&["mdadm", "--stop", &device]));
        if redundant && !clean && !spare {
            // Ends with 1 if there was nothing to wait for.
            self.run(words(&["sh", "-c", &format!("mdadm --wait {device} || true")]));
        }
        let set = |file: &str, value: u64| {
            let directory = format!("/sys/block/$(basename $(readlink -f {device}))/md");
            words(&["sh", "-c", &format!("echo {value} > {directory}/{file}")])
        };
        let settings = [
            ("stripe_cache_size", shape.stripe_cache.map(u64::from)),
            ("sync_speed_min", shape.sync_speed_min.map(|bytes| bytes >> 10)),
            ("sync_speed_max", shape.sync_speed_max.map(|bytes| bytes >> 10)),
        ];
        for (file, value) in settings {
            if let Some(value) = value {
                self.run(set(file, value));
            }
        }
        // Only now, so that the rebuild keeps to its speeds from the first moment.
        for spare in spares {
            self.run(words(&["mdadm", "--manage", &device, "--add", &spare]));
        }
        self.md = Some(device.clone());
        self.on_device(array, device, None)
    }

    /// For what everybody on this machine can see: nobody else's by accident.
    fn name_among_others(&self) -> String {
        let name = self.places.work.file_name().unwrap_or_default().to_string_lossy();
        name.chars().take(MD_NAME_MAX).collect()
    }

    pub(super) fn btrfs(&mut self, array: &Array) -> Built {
        let devices: Vec<String> =
            array.members.iter().map(|leg| self.block_device(leg.name())).collect();
        let profile = array.shape.level.map_or("single", Level::name);
        let mut command =
            words(&["mkfs.btrfs", "--quiet", "--force", "--data", profile, "--metadata", profile]);
        command.extend(devices.iter().cloned());
        self.run(command);
        let mut scan = words(&["btrfs", "device", "scan"]);
        scan.extend(devices.iter().cloned());
        self.run(scan);
        let target = self.mount(&devices[0], array.shape.mount_options.as_deref());
        Built::new(target)
    }

    pub(super) fn zfs(&mut self, array: &Array) -> Built {
        let devices: Vec<String> =
            array.members.iter().map(|leg| self.block_device(leg.name())).collect();
        let point = text(&self.directory("mnt"));
        let pool = self.name_among_others();
        // Without a cache file no restart of the system looks for it.
        let mut command =
            words(&["zpool", "create", "-f", "-o", "cachefile=none", "-m", &point, &pool]);
        match array.shape.level {
            Some(Level::Raid1) => command.push("mirror".into()),
            Some(Level::Raid5) => command.push("raidz".into()),
            Some(Level::Raid6) => command.push("raidz2".into()),
            _ => {}
        }
        if array.shape.level == Some(Level::Raid10) {
            for pair in devices.chunks(2) {
                command.push("mirror".into());
                command.extend(pair.iter().cloned());
            }
        } else {
            command.extend(devices);
        }
        self.run_undo(command, words(&["zpool", "destroy", "-f", &pool]));
        Built::new(Target::Directory { path: point })
    }
}
