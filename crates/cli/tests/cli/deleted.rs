//! Promise: members, and a bitmap, whose files are deleted while they serve are told while something can be done, and
//! an array does not stop for good unasked.

use crate::support::md::state;
use crate::support::{Lab, Server, pattern};
use serde_json::{Value, json};

fn served() -> (Lab, Server) {
    let lab = Lab::new(&[8; 4]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let server = lab.serve_data("m0 m1 m2");
    (lab, server)
}

fn delete(lab: &Lab, member: &str) {
    std::fs::remove_file(lab.path(member)).unwrap();
}

#[test]
fn a_deleted_member_is_shown_and_can_be_replaced_by_a_file_of_its_name() {
    let (lab, mut server) = served();
    assert_eq!(lab.detail()["members"][1]["deleted"], false);
    delete(&lab, "m1");
    assert_eq!(lab.detail()["members"][1]["deleted"], true);
    assert!(lab.run("detail data").ok().out.contains("  (deleted)\n"));
    assert!(lab.run("status data").ok().out.contains(" m1[1](deleted) "));
    lab.file("m1", 8 << 20);
    lab.run("add data m1").ok();
    let twice = lab.run("replace data m1");
    assert!(twice.code == 1 && twice.err.contains("by its number (1, 3)"), "{twice:?}");
    lab.run("replace data 1 --with 3").ok();
    lab.run("wait data --timeout 60").ok();
    let stopped = lab.run("stop data --json").ok();
    assert_eq!((&stopped.json()["deleted"], &*stopped.err), (&json!([]), ""));
    let (code, said) = server.end();
    assert!(code == 0 && said.matches("m1: its file was deleted").count() == 1, "{said}");
    let server = lab.serve_data("m0 m1 m2");
    assert_eq!(lab.detail()["state"], json!(["clean"]));
    assert_eq!(state(&lab.detail(), "m1"), "in_sync");
    server.stop();
}

#[test]
fn a_stop_tells_what_is_gone_with_it() {
    let (lab, mut server) = served();
    delete(&lab, "m2");
    let stopped = lab.run("stop data").ok();
    assert!(stopped.err.contains("the files of m2 were deleted"), "{stopped:?}");
    assert!(stopped.err.contains("--degraded"), "{stopped:?}");
    assert!(server.end().1.contains("m2: its file was deleted"));
    lab.serve_data("--degraded m0 m1").stop();
}

#[test]
fn a_stop_for_good_needs_force_or_a_signal() {
    let (lab, server) = served();
    delete(&lab, "m0");
    delete(&lab, "m1");
    let refused = lab.run("stop data");
    assert_eq!(refused.code, 1);
    for part in ["m0, m1", "nbdcopy 'nbd+unix:", "stop data --force", "nothing was changed"] {
        assert!(refused.err.contains(part), "no {part} in {}", refused.err);
    }
    assert_eq!(lab.detail()["state"], json!(["clean"]), "it serves on");
    let stopped = lab.run("stop data --force").ok();
    assert!(stopped.err.contains("cannot be started again"), "{stopped:?}");
    drop(server);
    let (lab, server) = served();
    delete(&lab, "m0");
    delete(&lab, "m1");
    server.stop();
    assert_eq!(lab.run("status data").code, 1);
}

#[test]
fn a_deleted_bitmap_file_is_given_up_and_can_be_made_anew() {
    let (lab, mut server) = served();
    lab.run("grow data --bitmap ./bits --force").ok();
    let copy = lab.read("bits");
    delete(&lab, "bits");
    lab.until("the bitmap is gone", |detail| detail["bitmap_place"].is_null());
    lab.run("grow data --bitmap ./bits").ok();
    assert!(lab.path("bits").exists());
    assert_eq!(lab.detail()["bitmap_place"], "external");
    delete(&lab, "bits");
    lab.run("stop data").ok();
    let (code, said) = server.end();
    let told = said.matches("bits: the write-intent bitmap's file was deleted").count();
    assert!(code == 0 && told == 2, "{said}");
    // A copy of it that comes back is behind.
    std::fs::write(lab.path("bits"), &copy).unwrap();
    let mut server = lab.serve_data("-b bits m0 m1 m2");
    lab.run("stop data").ok();
    let (_, said) = server.end();
    assert!(said.contains("is out of date"), "{said}");
}

/// What would be lost: every further write.
#[test]
fn a_bitmap_file_that_is_cut_off_is_given_up_and_the_array_goes_on() {
    let (lab, mut server) = served();
    lab.run("grow data --bitmap ./bits --force").ok();
    std::fs::File::options().write(true).open(lab.path("bits")).unwrap().set_len(0).unwrap();
    let bytes = pattern(3, 64 << 10);
    lab.fill(&server, &bytes);
    assert!(lab.detail()["bitmap_place"].is_null());
    lab.run("grow data --bitmap internal").ok();
    assert!(lab.contents(&server)[..bytes.len()] == bytes);
    lab.run("stop data").ok();
    let (code, said) = server.end();
    for part in [
        "cannot be written: its file has become shorter",
        "bits: the write-intent bitmap's file cannot be kept",
    ] {
        assert!(code == 0 && said.contains(part), "no {part} in {said}");
    }
}

/// What would be lost: all that was written, without a word.
#[test]
fn an_overlay_that_is_deleted_or_cut_off_is_told_and_given_up_by_force_only() {
    for is_cut in [false, true] {
        let lab = Lab::new(&[8; 3]);
        lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
        let mut server = lab.serve_data("--overlay over m0 m1 m2");
        lab.fill(&server, &pattern(1, 64 << 10));
        if is_cut {
            let over = std::fs::File::options().write(true).open(lab.path("over")).unwrap();
            over.set_len(0).unwrap();
            lab.run("detail data").ok();
            // What it held would be zeroes.
            let refused = lab.other(&format!("nbdcopy fill {}", server.uri())).unwrap();
            assert!(refused.code != 0 && refused.err.contains(" failed: "), "{refused:?}");
        } else {
            delete(&lab, "over");
        }
        let refused = lab.run("stop data");
        assert!(refused.code == 1 && refused.err.contains("it serves on"), "{refused:?}");
        assert!(refused.err.contains("file over was deleted or spoiled"), "{refused:?}");
        let (status, detail) = (lab.run("status data"), lab.run("detail data"));
        let code = if is_cut { 3 } else { 0 };
        assert_eq!((status.code, detail.code), (code, code), "{status:?} {detail:?}");
        assert!(!detail.out.contains("faulty"), "{detail:?}");
        assert!(status.out.contains("(overlay) (overlay lost) "), "{status:?}");
        assert!(detail.out.contains("Overlay : over (deleted or spoiled: "), "{detail:?}");
        let stopped = lab.run("stop data --json --force");
        assert_eq!(stopped.code, i32::from(is_cut), "{stopped:?}");
        let told: Value = serde_json::from_str(stopped.out.lines().next().unwrap()).unwrap();
        assert_eq!((&told["overlay_lost"], &told["deleted"]), (&json!("over"), &json!([])));
        assert!(stopped.err.contains("overlay's file over was"), "{stopped:?}");
        let (code, said) = server.end();
        assert_eq!(code, i32::from(is_cut), "{said}");
        assert_eq!(said.matches("over: the ").count(), 1, "{said}");
        if is_cut {
            let over = std::fs::File::options().write(true).open(lab.path("over")).unwrap();
            over.set_len(16 << 20).unwrap();
            let refused = lab.run("create other -l1 over missing");
            assert!(refused.err.contains("over: holds an overlay of Lapstrake's"), "{refused:?}");
        }
    }
    let lab = Lab::new(&[8; 3]);
    lab.run("create data -l5 -c64 --assume-clean m0 m1 m2").ok();
    let server = lab.serve_data("--overlay over m0 m1 m2");
    let stopped = lab.run("stop data --json").ok();
    assert_eq!((&stopped.json()["deleted"], &*stopped.err), (&json!([]), ""));
    assert_eq!(stopped.json()["overlay_lost"], json!(null));
    drop(server);
}
