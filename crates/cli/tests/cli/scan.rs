//! Finding arrays among files, and telling what each candidate is worth.

use crate::support::Lab;

fn two_arrays() -> Lab {
    let lab = Lab::new(&[16, 16, 16, 16, 16]);
    lab.run("create one -l1 --assume-clean m0 m1").ok();
    lab.run("create two -l5 --assume-clean m2 m3 m4").ok();
    lab
}

#[test]
fn arrays_in_a_directory_are_told_apart() {
    let lab = two_arrays();
    let ran = lab.run("scan .").ok();
    assert_eq!(ran.out.matches(": complete").count(), 2, "{ran:?}");
    assert!(ran.out.contains("lapstrake serve ./m2 ./m3 ./m4"), "{ran:?}");
    let found = lab.run("scan --json .").ok().json();
    let arrays = found["arrays"].as_array().unwrap();
    assert_eq!(arrays.len(), 2);
    assert_eq!(arrays[0]["state"], "complete");
    assert_eq!(arrays[0]["level"], "raid1");
    assert_eq!(arrays[1]["candidates"][2]["member"], "./m4");
    assert_eq!(arrays[1]["candidates"][2]["used"], true);
    assert_eq!(arrays[1]["serve"], "lapstrake serve ./m2 ./m3 ./m4");
    assert_eq!(found["others"].as_array().unwrap().len(), 0);
}

#[test]
fn an_array_in_use_is_not_proposed_by_whatever_name() {
    let lab = two_arrays();
    std::fs::hard_link(lab.path("m0"), lab.path("a-link")).unwrap();
    let server = lab.serve("m0 m1 --set-name one");
    lab.fill(&server, &[7; 4096]);
    // It need not answer for that.
    server.signal("-STOP");
    std::fs::copy(lab.path("m0"), lab.path("copy")).unwrap();
    let ran = lab.run("scan a-link m1 m2 m3 m4").ok();
    assert!(ran.out.contains("  in use by lapstrake (pid "), "{ran:?}");
    assert_eq!(ran.out.matches("lapstrake serve").count(), 1, "{ran:?}");
    let arrays = lab.run("scan --json m0 m1 m2 m3 m4").ok().json()["arrays"].take();
    assert_eq!(arrays[0]["in_use"].as_array().map(Vec::len), Some(1), "{arrays}");
    for key in ["serve", "resync_due", "may_be_old", "older", "obstacle"] {
        assert_eq!(arrays[0].get(key), Some(&serde_json::Value::Null), "{key}");
    }
    assert_eq!(arrays[1].get("in_use"), Some(&serde_json::Value::Null));
    assert_eq!(arrays[1]["serve"], "lapstrake serve m2 m3 m4");
    // A copy of a member is in nobody's use.
    let copy = lab.run("scan --json copy").json()["arrays"][0].take();
    assert_eq!(copy["serve"], "lapstrake serve --degraded copy", "{copy}");
    server.signal("-CONT");
    server.stop();
    // One who only reads leaves it as it is.
    let reader = lab.serve("m0 m1 --read-only");
    assert!(lab.run("scan m0 m1").ok().out.contains("lapstrake serve m0 m1"));
    reader.stop();
}

#[test]
fn a_link_and_its_file_are_one_member_by_the_name_given_first() {
    let lab = two_arrays();
    std::os::unix::fs::symlink("m0", lab.path("a-link")).unwrap();
    std::fs::hard_link(lab.path("m1"), lab.path("b-link")).unwrap();
    let members = |line: &str| {
        let found = lab.run(line).ok().json();
        assert_eq!(found["arrays"][0]["state"], "complete", "{found:#}");
        found["arrays"][0]["serve"].as_str().unwrap().to_owned()
    };
    assert_eq!(members("scan --json m0 a-link m1 b-link"), "lapstrake serve m0 m1");
    assert_eq!(members("scan --json ."), "lapstrake serve ./a-link ./b-link");
}

#[test]
fn what_is_lacking_is_told() {
    let lab = two_arrays();
    let ran = lab.run("scan m0 m2 m3");
    assert_eq!(ran.code, 3, "{ran:?}");
    assert_eq!(ran.out.matches(": degraded").count(), 2, "{ran:?}");
    assert!(ran.out.contains("slot 1 is empty"), "{ran:?}");
    assert_eq!(ran.out.matches("this is an old state").count(), 2, "{ran:?}");
    let arrays = &lab.run("scan --json m0 m2 m3 m4").json()["arrays"];
    assert_eq!((&arrays[0]["may_be_old"], &arrays[1]["may_be_old"]), (&true.into(), &false.into()));
    let ran = lab.run("scan m2");
    assert!(ran.out.contains(": incomplete") && !ran.out.contains("lapstrake serve"), "{ran:?}");
}

#[test]
fn a_member_that_was_put_back_from_an_older_copy_is_told() {
    let lab = Lab::new(&[16, 16]);
    lab.run("create data -l1 --assume-clean m0 m1").ok();
    let write = || {
        let server = lab.serve_data("m0 m1");
        lab.fill(&server, &[7; 4096]);
        server.stop();
    };
    write();
    std::fs::copy(lab.path("m0"), lab.path("old")).unwrap();
    // Superblocks count seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    write();
    let told = "older copy of it was put back";
    let ran = lab.run("scan m0 m1").ok();
    assert!(ran.out.contains("complete") && !ran.out.contains(told), "{ran:?}");
    std::fs::rename(lab.path("old"), lab.path("m0")).unwrap();
    let ran = lab.run("scan m0 m1").ok();
    assert!(
        ran.out.contains("complete") && ran.out.contains(&format!("perhaps an {told}")),
        "{ran:?}"
    );
    let found = lab.run("scan --json m0 m1").ok().json();
    let older = &found["arrays"][0]["older"];
    assert_eq!((older[0]["member"].as_str(), &older[1]), (Some("m0"), &serde_json::Value::Null));
    assert!(older[0]["seconds"].as_u64().unwrap() >= 1, "{older}");
    let ran = lab.run("cat -o out m0 m1").ok();
    assert!(ran.err.contains(told), "{ran:?}");
}

#[test]
fn a_line_to_paste_takes_no_member_for_an_option() {
    let lab = Lab::new(&[]);
    lab.file("-a", 16 << 20);
    lab.file("-b", 16 << 20);
    let made = lab.run("create data -l1 --assume-clean -- -a -b").ok();
    for told in [made, lab.run("scan -- -a -b").ok()] {
        assert!(told.out.contains("lapstrake serve ./-a ./-b\n"), "{told:?}");
    }
}

#[test]
fn files_without_superblocks_are_told() {
    let lab = two_arrays();
    lab.file("other", 1 << 20);
    let ran = lab.run("scan other m0 m1").ok();
    assert!(ran.out.contains("other: no md superblock"), "{ran:?}");
    let ran = lab.run("scan other").ok();
    assert!(ran.out.contains("no md array found"), "{ran:?}");
    let ran = lab.run("scan nothing m0 m1");
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("nothing"), "{ran:?}");
}

#[test]
fn a_machine_is_scanned_without_failure_unless_none_of_its_devices_can_be_read() {
    let table = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    let devices: Vec<_> = names.map(|name| std::path::Path::new("/dev").join(name)).collect();
    let can_read = devices.iter().any(|device| std::fs::File::open(device).is_ok());
    let ran = Lab::new(&[]).run("scan");
    match can_read || devices.is_empty() {
        true => assert!([0, 3].contains(&ran.code), "{ran:?}"),
        false => assert!(ran.code == 1 && ran.err.contains("cannot open it"), "{ran:?}"),
    }
}
