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
fn where_nothing_comes_near_the_wishes_that_is_said_and_not_that_nothing_can_be_built() {
    let output = advise(&["--disk=hdd-4tb@100", "--load=backup", "--budget=10"]);
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(3), "{err}");
    assert!(
        out.starts_with(
            "Nothing comes near the wishes: of 1 that could be built, the largest of 3.64 TiB, 0 are"
        ),
        "{out}"
    );
    assert!(out.contains("(--budget, --loss)"), "{out}");
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
    let (_, err) = said(&advise(&["--disk=hitachi-80", "--load=backup", "--loss", "-1%"]));
    assert!(err.contains("\"-1%\" is no probability"), "{err}");
    let (_, err) = said(&advise(&["--load=backup"]));
    assert!(err.contains("--disk PROFILE") && err.contains("--disks FILE"), "{err}");
}

#[test]
fn a_plan_with_a_load_that_cannot_be_tried_is_refused() {
    let room = tempfile::tempdir().unwrap();
    let plan = room.path().join("plan.toml");
    let text = "name = \"p\"\n[[disk]]\nmake = [\"a\", \"b\"]\nsize = \"64M\"\n[[array]]\nlevel = 1\nmembers = 2\n\
         over = \"fuse\"\n[[workload]]\nname = \"ours\"\npattern = \"uniform\"\n[[workload]]\nname = \"theirs\"\n\
         program = \"fio\"\njob = \"[j]\\nrw=read\\ndirect=1\\n\"\n";
    std::fs::write(&plan, text).unwrap();
    let output = advise(&["--disk=hitachi-80", &format!("--load={}", plan.display())]);
    let (_, err) = said(&output);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("the workload \"theirs\" has no pattern"), "{err}");
}

#[test]
fn numbers_that_mean_nothing_are_refused_with_their_range() {
    for (option, range) in [
        ("--replace=nan", "from 0 to 100000"),
        ("--replace=-5", "from 0 to 100000"),
        ("--replace=1e300", "from 0 to 100000"),
        ("--scrub=-5", "from 0.01 to 36500"),
        ("--scrub=nan", "from 0.01 to 36500"),
        ("--years=1e30", "from 0.01 to 100"),
        ("--years=nan", "from 0.01 to 100"),
        ("--years=0", "from 0.01 to 100"),
        ("--budget=nan", "from 0 to 1"),
        ("--budget=-1", "from 0 to 1"),
        ("--spares=18446744073709551615", "from 0 to 1000"),
        ("--disk=hitachi-80@inf", "from 0 to 1"),
    ] {
        let output = advise(&["--disk=hitachi-80", "--load=backup", option]);
        let (out, err) = said(&output);
        assert_eq!(output.status.code(), Some(2), "{option}: {out}{err}");
        assert!(err.contains(range), "{option}: {err}");
    }
}

#[test]
fn the_commands_run_as_they_are_told() {
    let disks = [("hitachi-80-1", 90), ("hitachi-80-2", 90), ("hitachi-80-3", 90)];
    let disks = [disks.as_slice(), &[("seagate-250-x510-1", 260), ("seagate-250-x510-2", 260)]];
    let output =
        advise(&["--disk=hitachi-80x3", "--disk=seagate-250-x510x2", "--load=media", "--json"]);
    let (out, err) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{err}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    let (mut spares, mut layers) = (0, 0);
    for one in answer["tried"].as_array().unwrap() {
        let room = tempfile::tempdir().unwrap();
        for (name, gigabytes) in disks.iter().copied().flatten() {
            let file = std::fs::File::create(room.path().join(name)).unwrap();
            file.set_len(gigabytes * 1_000_000_000).unwrap();
        }
        let has_spare = !one["spare"].is_null();
        let commands =
            one["commands"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
        let commands: Vec<&str> = commands.filter(|line| !line.starts_with('#')).collect();
        for line in &commands {
            let words = line.strip_prefix("lapstrake ").unwrap().split(' ');
            let mut run = Command::new(env!("CARGO_BIN_EXE_lapstrake"));
            let output = run.args(words).current_dir(room.path()).output().unwrap();
            assert!(output.status.success(), "{line}: {:?}", said(&output));
            assert_eq!(line.contains("--spare-devices 1"), has_spare, "{line}");
        }
        spares += usize::from(has_spare);
        layers += usize::from(commands.len() > 1);
    }
    assert!(spares > 0 && layers > 0, "{spares} with spares, {layers} of several arrays");
}

#[test]
fn disks_on_a_cable_are_named_as_such_and_a_name_that_is_none_is_refused() {
    let disks = ["--disk=hitachi-80x2", "--load=backup"];
    let with = |cable: &str| advise(&[&disks[..], &[cable]].concat());
    let (out, err) = said(&with("--cable=hitachi-80-1,hitachi-80-2@66M"));
    assert!(out.contains("on cable 1"), "{out} {err}");
    let wrong = with("--cable=hitachi-80-1,x");
    let (_, err) = said(&wrong);
    assert_eq!(wrong.status.code(), Some(2), "{err}");
    assert!(err.contains("no disk \"x\"; there are hitachi-80-1, hitachi-80-2"), "{err}");
}
