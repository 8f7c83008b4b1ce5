//! Files named here were printed by fio 3.33 and shortened (fields that nobody reads, disks' statistics); what older fios
//! print is made up by the form that their sources and HOWTO give.

use super::*;
use crate::import::Tool;

const STATUS: &str = include_str!("../../../tests/data/fio-status-interval.json");
const APPENDED: &str = include_str!("../../../tests/data/fio-appended.json");
const NORMAL_JSON: &str = include_str!("../../../tests/data/fio-normal-json.txt");
const CLIENT: &str = include_str!("../../../tests/data/fio-client.txt");
const UNIFIED: &str = include_str!("../../../tests/data/fio-unified.json");
const BOTH: &str = include_str!("../../../tests/data/fio-unified-both.json");
/// A line each of `--terse-version` 2 to 5.
const MINIMAL: &str = include_str!("../../../tests/data/fio-minimal.txt");

/// Each result as "load direction": bytes, figure, seconds.
fn results(text: &str) -> Vec<(String, u64, f64, f64)> {
    assert_eq!(Tool::guess(text), Some(Tool::Fio));
    let told = parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let of = |told: &Told| {
        let of = |phase: &Phase| {
            let name = format!("{} {}", told.workload.name, phase.name);
            (name, phase.bytes(), phase.figure.value, phase.seconds)
        };
        told.phases.iter().map(of).collect::<Vec<_>>()
    };
    told.iter().flat_map(of).collect()
}

fn result(name: &str, bytes: u64, figure: f64, seconds: f64) -> (String, u64, f64, f64) {
    (name.to_owned(), bytes, figure, seconds)
}

#[test]
fn of_what_status_interval_printed_the_last_counts() {
    let last = [
        result("mix read", 16_384_000, 8_187_906.0, 2.001),
        result("mix write", 16_384_000, 8_187_906.0, 2.001),
        result("scan read", 262_209_536, 131_039_248.0, 2.001),
    ];
    assert_eq!(results(STATUS), last);
    // The same again is another run, which begins anew.
    let twice = STATUS.replace("\"timestamp\": 1795898", "\"timestamp\": 1795899");
    let both = results(&format!("{STATUS}{twice}"));
    assert_eq!(both, [last.clone(), last].concat());
    let cut = &STATUS[..STATUS.rfind("\"scan\"").unwrap()];
    let error = parse(cut).unwrap_err();
    assert_eq!(error.line, cut.lines().count(), "{error}");
}

#[test]
fn appended_runs_and_jobs_one_after_the_other_are_repeats() {
    let read = |figure, seconds| result("again read", 16 << 20, figure, seconds);
    let all = [
        read(45_343_827.0, 0.370),
        read(45_466_710.0, 0.369),
        read(47_393_265.0, 0.354),
        read(34_592_197.0, 0.485),
    ];
    assert_eq!(results(APPENDED), all);
}

#[test]
fn text_before_and_after_the_json_is_passed_over() {
    let read = |figure, seconds| result("again read", 16 << 20, figure, seconds);
    assert_eq!(results(NORMAL_JSON), [read(52_265_470.0, 0.321), read(47_527_524.0, 0.353)]);
    let people = &NORMAL_JSON[NORMAL_JSON.find("\n}").unwrap() + 2..];
    let error = parse(people).unwrap_err().to_string();
    assert!(error.contains("text for people is not read"), "{error}");
}

#[test]
fn jobs_of_several_servers_count_together_as_fio_has_it_for_all_clients() {
    let all = results(CLIENT);
    // fio's own sums.
    let sums = [("w write", 16 << 20, 645_277_538.0), ("r read", 8 << 20, 59_918_628.0)];
    assert_eq!(all.len(), sums.len());
    for ((name, bytes, figure, _), sum) in all.iter().zip(sums) {
        assert_eq!((name.as_str(), *bytes), (sum.0, sum.1));
        assert!((figure - sum.2).abs() < 1e-6 * sum.2, "{figure} {sum:?}");
    }
    let subject = |text: &str| parse(text).unwrap()[0].subject.clone();
    assert_eq!(subject(CLIENT).as_deref(), Some("127.0.0.1"));
    assert_eq!(subject(&CLIENT.replacen("\"127.0.0.1\"", "\"nas\"", 1)), None);
}

#[test]
fn directions_reported_as_one_are_mixed_unless_the_job_had_but_one() {
    assert_eq!(results(UNIFIED), [result("m mixed", 0, 4_060_313.0, 1.033)]);
    let one_way = UNIFIED.replace("\"randrw\"", "\"randwrite\"");
    assert_eq!(results(&one_way), [result("m write", 4 << 20, 4_060_313.0, 1.033)]);
    let write = &parse(&one_way).unwrap()[0].phases[0].write;
    assert_eq!((write.requests, write.latency.as_ref().unwrap().count()), (1024, 1024));
    let both = [
        result("m read", 2_031_616, 15_996_976.0, 0.127),
        result("m write", 2_162_688, 17_029_039.0, 0.127),
    ];
    assert_eq!(results(BOTH), both);
}

#[test]
fn trims_are_a_direction_of_their_own() {
    let text = BOTH.replace("\"write\": {", "\"x\": {").replace("\"trim\": {", "\"write\": {");
    let trims = text.replace("\"x\": {", "\"trim\": {");
    assert_eq!(results(&trims)[1], result("m trim", 0, 17_029_039.0, 0.127));
}

#[test]
fn processor_time_is_of_all_processes() {
    // 1 % of 4000 ms, which four processes took together within one second.
    let direction = r#"{"io_bytes": 4096, "io_kbytes": 4, "bw": 4, "iops": 1.0, "runtime": 1000}"#;
    let text = format!(
        r#"{{"fio version": "fio-3.33", "jobs": [{{"jobname": "g", "read": {direction},
            "usr_cpu": 1.0, "sys_cpu": 0.5, "job_runtime": 4000}}]}}"#
    );
    let cpu = &parse(&text).unwrap()[0].phases[0].cpu;
    assert!((cpu.user_s - 0.04).abs() < 1e-12 && (cpu.system_s - 0.02).abs() < 1e-12, "{cpu:?}");
}

/// As fio 2.1 to 2.21 have it: KiB and microseconds; options since 2.14, numbers of requests since 2.2.
const FIO_2: &str = r#"{
  "fio version" : "fio-2.16",
  "timestamp" : 1480000000,
  "global options" : { "bs" : "8k", "direct" : "1" },
  "jobs" : [
    {
      "jobname" : "db", "groupid" : 0, "error" : 0, "eta" : 0, "elapsed" : 11,
      "job options" : { "rw" : "randread", "iodepth" : "16" },
      "read" : {
        "io_bytes" : 819200, "bw" : 81920, "iops" : 10240.00, "runtime" : 10000, "total_ios" : 102400,
        "short_ios" : 0, "drop_ios" : 0,
        "slat" : { "min" : 1, "max" : 90, "mean" : 3.10, "stddev" : 0.50 },
        "clat" : {
          "min" : 100, "max" : 9000, "mean" : 1500.00, "stddev" : 200.00,
          "percentile" : { "50.000000" : 1496 },
          "bins" : {
            "100" : 1000, "310" : 101400, "FIO_IO_U_PLAT_BITS" : 6, "FIO_IO_U_PLAT_VAL" : 64, "FIO_IO_U_PLAT_NR" : 1216
          }
        },
        "bw_min" : 80000, "bw_max" : 83000, "bw_agg" : 100.00, "bw_mean" : 81900.00, "bw_dev" : 10.00
      },
      "write" : { "io_bytes" : 0, "bw" : 0, "iops" : 0.00, "runtime" : 0, "total_ios" : 0 },
      "trim" : { "io_bytes" : 0, "bw" : 0, "iops" : 0.00, "runtime" : 0, "total_ios" : 0 },
      "usr_cpu" : 2.00, "sys_cpu" : 10.00, "ctx" : 102400, "majf" : 0, "minf" : 40
    }
  ]
}
"#;

#[test]
fn fio_2_counts_kibibytes_and_microseconds() {
    let all = [result("db read", 819_200 << 10, 81_920.0 * 1024.0, 10.0)];
    assert_eq!(results(FIO_2), all);
    let told = &parse(FIO_2).unwrap()[0];
    assert_eq!(
        (&told.workload.params["queue_depth"], &told.workload.params["block_size"]),
        (&16.into(), &8192.into())
    );
    let phase = &told.phases[0];
    assert!((phase.cpu.user_s - 0.2).abs() < 1e-9);
    // Bin 310, at 64 bins for each power of two: 512 us and 54 bins of 8 us, in the middle.
    let latency = phase.read.latency.as_ref().unwrap();
    assert_eq!((phase.read.requests, latency.count()), (102_400, 102_400));
    let median = latency.percentile(50.0);
    assert!(median.abs_diff(948_000) < 10_000, "{median}");
    // fio 2.1 neither counts requests nor tells options.
    let older = FIO_2.replace("\"total_ios\" : 102400,", "").replace("\"job options\"", "\"x\"");
    let told = &parse(&older).unwrap()[0];
    assert_eq!(told.phases[0].read.requests, 102_400);
}

/// Lines of `--minimal`, of a job that read 1000 KiB in 500 ms and wrote as much in 250.
fn minimal(head: &str, has_iops: bool, has_percentiles: bool, directions: usize) -> String {
    let direction = |kib: u32, kib_s: u32, iops: u32, ms: u32| {
        let iops = if has_iops { format!("{iops};") } else { String::new() };
        let percentiles = if has_percentiles { ";50.000000%=40".repeat(20) } else { String::new() };
        let lat = if head.starts_with("mine") { "" } else { ";11;91;31.5;1.5" };
        let more = if head.starts_with('5') { ";4;10;20;15.0;1.0;4" } else { "" };
        format!(
            ";{kib};{kib_s};{iops}{ms};1;2;1.5;0.5;10;90;30.5;1.5{percentiles}{lat};100;200;50.0%;150.0;2.0{more}"
        )
    };
    let all =
        [direction(1000, 2000, 500, 500), direction(1000, 4000, 1000, 250), direction(0, 0, 0, 0)];
    let all = all[..directions].concat();
    format!("{head}{all};3.000000%;6.000000%;10;0;5;100.0%;0.0%;0.0%;0.0%;0.0%;0.0%;0.0%;0.01%\n")
}

#[test]
fn minimals_lines_of_every_version_are_read() {
    let all = [
        result("mine read", 1000 << 10, 2000.0 * 1024.0, 0.5),
        result("mine write", 1000 << 10, 4000.0 * 1024.0, 0.25),
    ];
    let versions = [
        minimal("mine;0;0", false, false, 2),
        minimal("2;mine;0;0", false, false, 2),
        minimal("2;mine;0;0", true, true, 2),
        minimal("3;fio-2.1;mine;0;0", true, true, 2),
        minimal("4;fio-3.33;mine;0;0", true, true, 3),
        minimal("5;fio-3.33;mine;0;0", true, true, 3),
    ];
    for line in versions {
        assert_eq!(results(&line), all, "{line}");
        let phases = &parse(&line).unwrap()[0].phases;
        assert!((phases[0].cpu.user_s - 0.03 * 0.5 * 0.5 / 0.75).abs() < 1e-12, "{line}");
    }
    let mixed = results(&minimal("3;fio-3.33;mine;0;0", true, true, 1));
    assert_eq!(mixed, [result("mine mixed", 0, 2000.0 * 1024.0, 0.5)]);
}

#[test]
fn minimals_lines_of_fio_3_are_read() {
    let figures = [
        (25_435.0, 27_076.0, 0.078),
        (17_252.0, 18_365.0, 0.115),
        (46_139.0, 49_116.0, 0.043),
        (32_524.0, 34_622.0, 0.061),
    ];
    for (line, (read, write, seconds)) in MINIMAL.lines().zip(figures) {
        let all = [
            result("m read", 1984 << 10, read * 1024.0, seconds),
            result("m write", 2112 << 10, write * 1024.0, seconds),
        ];
        assert_eq!(results(line), all);
    }
}

#[test]
fn minimals_runs_are_told_apart_by_their_groups_or_refused() {
    let line =
        |name: &str, group: u32| minimal(&format!("3;fio-2.1;{name};{group};0"), true, true, 2);
    let run = [line("a", 0), line("b", 1)].concat();
    let other = run.replace(";90;", ";80;");
    assert_eq!(results(&format!("{run}{other}")).len(), 8);
    // As long, though it moved more and had slower requests.
    let as_long = other.replace(";1000;", ";2000;").replace(";80;", ";95;");
    assert_eq!(results(&format!("{run}{as_long}")).len(), 8, "a run of its own");
    let later = as_long.replace(";500;500;", ";500;1500;").replace(";1000;250;", ";1000;1250;");
    let later = later.replace(";2000;250;", ";2000;1250;");
    assert_eq!(results(&format!("{run}{later}")).len(), 4, "more of the same run");
    assert_eq!(results(&format!("{run}{run}")).len(), 4, "the end, told as the last status was");
    let error = parse(&format!("{}{}", line("a", 0), line("a", 0))).unwrap_err();
    assert_eq!((error.line, error.why.contains("group_reporting")), (2, true), "{error}");
    assert!(parse(&line("a", 0).replace(";10;90;", ";10;x;")).is_err());
}
