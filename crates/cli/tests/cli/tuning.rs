//! Promise: what `detail` recommends fits the array, and `set` changes stripe cache and read-ahead while it is used.

use crate::support::{Lab, LoopDevices, Server, exists, not_run, pattern};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Served as the file `raw`; none, said aloud, where there is no FUSE.
fn served(lab: &Lab, create: &str, members: &str) -> Option<Server> {
    if !exists("/dev/fuse") {
        not_run("tuning", "there is no /dev/fuse");
        return None;
    }
    lab.run(&format!("create data {create} --assume-clean {members}")).ok();
    Some(lab.serve(&format!("--shards 2 --fuse raw {members}")))
}

fn detail(lab: &Lab) -> Value {
    lab.run("detail data --json").ok().json()
}

#[test]
fn filesystem_options_and_read_ahead_fit_the_array() {
    for (create, mib, read_ahead_kib, ext4, xfs) in [
        ("-l5 -c64", 32, 384, Some("-E stride=16,stripe_width=48"), None),
        ("-l5 -c64", 128, 384, Some("-E stride=16,stripe_width=48"), None),
        (
            "-l10 -p f2 -c512",
            1200,
            4096,
            Some("-E stride=128,stripe_width=512"),
            Some("su=512k,sw=4"),
        ),
        ("-l1", 32, 128, None, None),
    ] {
        let lab = Lab::new(&[mib; 4]);
        let Some(server) = served(&lab, create, "m0 m1 m2 m3") else { return };
        let json = detail(&lab);
        let tuning = &json["tuning"];
        let xfs = xfs.map(|shape| format!("-d {shape}"));
        assert_eq!(tuning["read_ahead_bytes"], read_ahead_kib << 10, "{create}");
        assert_eq!(
            (tuning["mkfs_ext4"].as_str(), tuning["mkfs_xfs"].as_str()),
            (ext4, xfs.as_deref())
        );
        let text = lab.run("detail data").ok().out;
        let sectors = read_ahead_kib * 2;
        let mut lines = vec![format!(
            "Read Ahead : {read_ahead_kib}K fits (blockdev --setra {sectors} DEVICE)\n"
        )];
        lines.push("Stripe Cache Size : 256 pages x 4 KiB x 4 members x 2 shards\n".into());
        lines.extend(ext4.map(|options| format!("ext4 : mkfs.ext4 {options}\n")));
        lines.extend(match &xfs {
            Some(options) => Some(format!("XFS : mkfs.xfs {options}\n")),
            None => ext4.map(|_| {
                "XFS : mkfs.xfs by its own choice: it may refuse these chunks on this size\n".into()
            }),
        });
        for line in lines {
            assert!(text.contains(&line), "no {line:?} in {text}");
        }
        server.stop();
        let Some(options) = xfs else { continue };
        lab.file("like-it", json["array_bytes"].as_u64().unwrap());
        if let Some(made) = lab.other(&format!("mkfs.xfs -N {options} like-it")) {
            made.ok();
        }
    }
}

/// Partial writes all the while, which need the stripe cache; the array holds them all.
#[test]
fn the_stripe_cache_changes_its_size_under_load() {
    let lab = Lab::new(&[32; 3]);
    let Some(server) = served(&lab, "-l5 -c64", "m0 m1 m2") else { return };
    let blocks = 2048;
    let contents = pattern(3, blocks * 4096);
    let (over, raw) = (AtomicBool::new(false), lab.path("raw"));
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (contents, over, raw) = (&contents, &over, &raw);
            scope.spawn(move || {
                let file = File::options().write(true).open(raw).unwrap();
                while !over.load(Ordering::Relaxed) {
                    for block in (writer..blocks).step_by(4) {
                        let at = block * 4096;
                        file.write_all_at(&contents[at..at + 4096], at as u64).unwrap();
                    }
                }
            });
        }
        let bytes = |pages: u64| pages * 3 * 2 * 4096;
        for pages in [32, 8192, 64, 1024, 1024] {
            let set = lab.run(&format!("set data stripe_cache_size={pages} --json")).ok().json();
            assert_eq!(set["settings"]["stripe_cache_size"], pages);
            let json = detail(&lab);
            assert_eq!(json["stripe_cache_size"], pages);
            // A smaller one gives back its memory as work ends.
            assert!(json["memory"]["stripe_cache"].as_u64().unwrap() >= bytes(pages));
            let mut turns = 0;
            while detail(&lab)["memory"]["stripe_cache"] != bytes(pages) {
                turns += 1;
                assert!(turns < 200, "memory is kept: {}", detail(&lab)["memory"]);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(&lab.read("raw")[..contents.len()], contents);
    lab.run("check data").ok();
    lab.run("wait data --timeout 60").ok();
    assert_eq!(detail(&lab)["mismatch_sectors"], 0);
    server.stop();
}

#[test]
fn what_cannot_be_set_changes_nothing() {
    let lab = Lab::new(&[16; 3]);
    let Some(server) = served(&lab, "-l5 -c64", "m0 m1 m2") else { return };
    for size in ["31", "32769", "4294967296"] {
        let refused = lab.run(&format!("set data sync_speed_min=7 stripe_cache_size={size}"));
        assert!(refused.code == 1 && refused.err.contains("nothing was changed"), "{refused:?}");
    }
    let refused = lab.run("set data sync_speed_min=7 read_ahead=1M");
    assert!(refused.code == 1 && refused.err.contains("no loop device lies on it"), "{refused:?}");
    assert_eq!(lab.run("set data read_ahead=1023").code, 2, "no whole pages");
    let json = detail(&lab);
    assert_eq!(
        (&json["stripe_cache_size"], &json["sync_speed_min_kib"]),
        (&256.into(), &1000.into())
    );
    server.stop();

    let lab = Lab::new(&[16; 2]);
    let Some(server) = served(&lab, "-l0", "m0 m1") else { return };
    let refused = lab.run("set data stripe_cache_size=512");
    assert!(refused.code == 1 && refused.err.contains("has no stripe cache"), "{refused:?}");
    server.stop();
}

#[test]
fn read_ahead_is_that_of_the_loop_device_on_top() {
    let lab = Lab::new(&[32; 3]);
    let Some(server) = served(&lab, "-l5 -c64", "m0 m1 m2") else { return };
    let made = LoopDevices::over(&[lab.path("raw")], &[], "read-ahead");
    let Some(devices) = made else { return };
    let device = &devices.0[0];
    let set = lab.run("set data read_ahead=1M stripe_cache_size=512").ok().out;
    assert!(set.contains(&format!("data: read_ahead of {device}=1024\n")), "{set}");
    let file = format!("/sys/block/{}/queue/read_ahead_kb", device.trim_start_matches("/dev/"));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "1024\n");
    let text = lab.run("detail data").ok().out;
    assert!(text.contains(&format!("{device} : 1024K now\n")), "{text}");
    drop(devices);
    server.stop();
}
