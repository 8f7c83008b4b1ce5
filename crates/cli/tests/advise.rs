//! Promise: `lapstrake advise` answers from profiles alone, for people and for programs, and says so if it cannot.

use serde_json::Value;
use std::process::{Command, Output};

fn advise(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lapstrake")).arg("advise").args(words).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_pair_of_disks_is_best_mirrored_when_data_may_not_be_lost() {
    let page = tempfile::tempdir().unwrap();
    let path = page.path().join("advice.html");
    let output = advise(&[
        "--disk=hitachi-80x2@20",
        "--load=backup",
        "--loss=5%",
        "--json",
        "-o",
        path.to_str().unwrap(),
    ]);
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    let pick = &answer["tried"][answer["choice"]["pick"].as_u64().unwrap() as usize];
    let level = pick["arrays"][0]["level"].as_str().unwrap();
    assert!(["raid1", "raid10"].contains(&level), "{pick}");
    assert_eq!(pick["cost"], 40.0);
    let loss = &pick["loss_of_data"];
    assert!(loss["low"].as_f64() <= loss["value"].as_f64() && loss["value"].as_f64() < Some(0.05));
    assert!(std::fs::read_to_string(path).unwrap().contains("predicted"));
}

#[test]
fn what_cannot_be_met_ends_with_3_and_what_makes_no_sense_with_2() {
    let output = advise(&["--disk=hitachi-80", "--load=backup", "--loss=0.001%"]);
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(out.contains("misses only safety"), "{out}");
    for wrong in [
        vec!["--load=backup"],
        vec!["--disk=hitachi-80", "--load=nobody"],
        vec!["--disk=nobody", "--load=backup"],
        vec!["--disk=hitachi-80", "--load=backup", "--loss=2"],
        vec!["--disk=hitachi-80", "--load=backup", "-o", "advice.txt"],
    ] {
        let output = advise(&wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {:?}", said(&output));
    }
}
