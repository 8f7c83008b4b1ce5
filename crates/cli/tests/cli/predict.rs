//! Promise: `lapstrake predict` says what a plan would measure, as records, as a table and as a page that says so, beside
//! what was measured; what it cannot do it names.

use crate::support::Lab;
use serde_json::Value;

const PLAN: &str = "name = \"small\"\n[run]\ntime = \"300ms\"\nwarm-up = \"50ms\"\n\
     [[disk]]\nmake = [\"a\", \"b\", \"c\"]\nsize = \"64M\"\nprofile = \"hitachi-80\"\n\
     [[array]]\nlevel = [0, 5]\nmembers = 3\n\
     [[workload]]\nname = \"read\"\npattern = \"sequential\"\nblock = \"1M\"\ndepth = 4\n";

fn lab(text: &str) -> Lab {
    let lab = Lab::new(&[]);
    lab.file("plan.toml", 0);
    lab.write_at("plan.toml", 0, text.as_bytes());
    lab
}

#[test]
fn a_record_for_each_array_state_load_and_metric() {
    let lab = lab(PLAN);
    let told = lab.run("predict plan.toml --draws 3 --json").ok().json();
    let records = told["records"].as_array().unwrap();
    let find = |array: &str, metric: &str| {
        let is_it = |r: &&Value| r["array"] == array && r["metric"] == metric;
        records.iter().find(is_it).unwrap_or_else(|| panic!("{array} {metric}: {records:?}"))
    };
    let raid0 = find("raid0", "throughput");
    assert_eq!(
        (raid0["state"].as_str(), raid0["workload"].as_str()),
        (Some("healthy"), Some("read"))
    );
    assert_eq!(raid0["unit"], "bytes/s");
    let number = |record: &Value, key: &str| record[key].as_f64().unwrap();
    assert!(number(raid0, "low") < 0.9 * number(raid0, "value"), "{raid0}");
    assert!(1.1 * number(raid0, "value") < number(raid0, "high"), "{raid0}");
    assert_eq!(raid0["evidence"], "a stream of reads");
    let latency = find("raid5", "read latency p99");
    assert!(latency["low"].is_null() && latency["high"].is_null(), "{latency}");
    assert!(latency["evidence"].as_str().unwrap().starts_with("a guess: "), "{latency}");
    assert!(number(raid0, "value") > 150e6, "{raid0}");
    assert_eq!(find("raid5", "read latency p99")["unit"], "ns");
    assert!(number(&told, "virtual_s") > 1.9);
    assert!(number(&told, "speed_up") > 1.0);
    // The same seed says the same.
    let again = lab.run("predict plan.toml --draws 3 --threads 1 --json").ok().json();
    assert_eq!(again["records"], told["records"]);
    let other = lab.run("predict plan.toml --draws 3 --seed 9 --json").ok().json();
    assert_ne!(other["records"], told["records"]);
}

#[test]
fn evidence_of_ones_own_makes_the_bars() {
    let lab = lab(PLAN);
    let reach = |off: u32, cases: &[&str]| {
        let row =
            |case: &&str| format!("{case},an array,read,a stream of reads,100,{}\n", 100 + off);
        let rows: String = cases.iter().map(row).collect();
        let text = format!("case,array,figure,kind,published,predicted\n{rows}");
        std::fs::write(lab.path("own.csv"), text).unwrap();
        let told = lab.run("predict plan.toml --draws 1 --evidence own.csv --json").ok().json();
        let raid0 = told["records"][0].clone();
        Some((raid0["high"].as_f64()? / raid0["value"].as_f64()?).ln())
    };
    // Student's t with two degrees of freedom: 4.303.
    let little = reach(2, &["a", "b"]).unwrap();
    assert!((little / 1.02_f64.ln() - 4.303).abs() < 0.01, "{little}");
    assert_eq!(reach(2, &["a"]), None, "one case is no evidence");
    std::fs::write(lab.path("own.csv"), "no such\n").unwrap();
    let told = lab.run("predict plan.toml --evidence own.csv");
    assert!(told.code == 2 && told.err.contains("own.csv"), "{told:?}");
}

#[test]
fn the_page_and_the_store_say_that_it_was_predicted() {
    let lab = lab(PLAN);
    let told = lab.run("predict plan.toml --draws 2 -o report.html").ok();
    assert!(told.out.contains("raid5") && told.out.contains("MB/s"), "{}", told.out);
    assert!(told.out.contains("times faster than real time"), "{}", told.out);
    let page = std::fs::read_to_string(lab.path("report.html")).unwrap();
    let body = &page[..page.find("<script").unwrap()];
    assert!(body.contains("<strong>Predicted</strong>") && !body.contains("(predicted)"));
    assert!(body.contains("raid5 healthy: read, throughput") && body.contains("(a guess)"));
    assert!(lab.run("lab list").ok().out.contains("predicted"));
    let report = lab.run("lab report").ok();
    assert!(
        report.out.starts_with("Predicted on models of disks, not measured.\n"),
        "{}",
        report.out
    );
    assert!(report.out.contains("raid0"), "{}", report.out);
}

#[test]
fn what_cannot_be_predicted_is_named() {
    let refused = |text: &str, line: &str, code: i32, expected: &str| {
        let told = lab(text).run(line);
        assert!(told.code == code && told.err.contains(expected), "{told:?}");
    };
    let plan = "predict plan.toml";
    let abacus = PLAN.replace("hitachi-80", "abacus");
    refused(&abacus, plan, 2, "plan.toml:8: \"abacus\" is no profile that is built in");
    let there = PLAN.replace(
        "make = [\"a\", \"b\", \"c\"]\nsize = \"64M\"\nprofile = \"hitachi-80\"",
        "make = [\"a\", \"b\"]\nsize = \"64M\"\n[[disk]]\nname = \"c\"\npath = \"/dev/null@0+64M\"",
    );
    refused(&there, plan, 1, "disk \"c\" has no profile: say profile = \"NAME\"");
    let near = PLAN.replace("hitachi-80", "hitachi-8");
    refused(&near, plan, 2, "is hitachi-80 meant?");
    refused(PLAN, "predict plan.toml -o report.txt", 2, "must end in .html");
    refused(PLAN, "predict plan.toml -o none/report.html", 2, "nothing was begun");
    let large = PLAN.replace("\"64M\"", "\"64M\"\nsize-predicted = \"1T\"");
    refused(
        &large,
        plan,
        1,
        "disk \"a\" is to have 1099511627776 bytes from byte 0 on (size-predicted",
    );
    refused(PLAN, "predict plan.toml --processor abacus", 2, "there are duron-1300");
    let small = PLAN.replace("\"64M\"", "\"64M\"\nsize-predicted = \"64K\"");
    refused(&small, plan, 1, "no run succeeded; nothing was kept");
    let null = PLAN.replace("level = [0, 5]\nmembers = 3", "system = \"null\"");
    refused(&null, plan, 1, "nothing of the plan \"small\" can be predicted");
}

#[test]
fn a_page_replaces_no_other_file() {
    let lab = lab(PLAN);
    std::fs::write(lab.path("mine.html"), "mine").unwrap();
    std::fs::create_dir(lab.path("dir.html")).unwrap();
    for (page, why) in [("mine.html", "holds something else"), ("dir.html", "is a directory")] {
        let told = lab.run(&format!("predict plan.toml -o {page}"));
        assert!(told.code == 2 && told.err.contains(why), "{told:?}");
    }
    assert_eq!(std::fs::read_to_string(lab.path("mine.html")).unwrap(), "mine");
    for _ in 0..2 {
        lab.run("predict plan.toml --draws 1 -o page.html").ok();
    }
    let told = lab.run("lab report -o mine.html");
    assert!(told.code == 2 && told.err.contains("holds something else"), "{told:?}");
}

#[test]
fn postgresql_is_predicted_with_what_limits_it() {
    let lab = lab(
        "name = \"pg\"\n[[disk]]\nmake = [\"a\", \"b\"]\nsize = \"2G\"\nprofile = \"hdd-4tb\"\n\
         [[array]]\nlevel = 1\nmembers = 2\nfilesystem = \"ext4\"\n\
         [[workload]]\nname = \"on\"\nprogram = \"pgbench\"\ntime = \"10s\"\nscale = 20\n\
         [[workload]]\nname = \"off\"\nprogram = \"pgbench\"\ntime = \"10s\"\nscale = 20\n\
         configuration = \"synchronous_commit = off\"\n\
         [[workload]]\nname = \"unsafe\"\nprogram = \"pgbench\"\nconfiguration = \"fsync = off\"\n",
    );
    let told = lab.run("predict plan.toml --draws 1 --json").ok().json();
    let tps = |load: &str| {
        let records = told["records"].as_array().unwrap();
        let record = records.iter().find(|r| r["workload"] == load && r["metric"] == "rate");
        let record = record.unwrap_or_else(|| panic!("{load}: {told}"));
        assert_eq!(record["unit"], "transactions/s");
        assert!(record["evidence"].as_str().unwrap().starts_with("a guess: "), "{record}");
        record["value"].as_f64().unwrap()
    };
    assert!(tps("on") > 1.0 && tps("off") > 1.5 * tps("on"), "{told}");
    let notes = told["notes"].to_string();
    assert!(notes.contains("on on raid1 is limited by flushes of the log at commits"), "{notes}");
    assert!(notes.contains("unsafe on raid1: PostgreSQL is modelled with fsync = on"), "{notes}");
}
