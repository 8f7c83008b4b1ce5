//! Files named here were printed by iozone 3.471 and shortened to the lines that are read.

use super::*;
use crate::import::Tool;

const THREADS: &str = include_str!("../../../tests/data/iozone-threads.txt");
const PROCESSES: &str = include_str!("../../../tests/data/iozone-processes.txt");

/// Each load with its figures in KiB/s.
fn loads(text: &str) -> Vec<(String, Vec<(String, f64)>)> {
    assert_eq!(Tool::guess(text), Some(Tool::Iozone));
    let of = |told: Told| {
        let figures =
            told.phases.into_iter().map(|phase| (phase.name, phase.figure.value / 1024.0));
        (told.workload.name, figures.collect())
    };
    Tool::Iozone.parse(text).unwrap().into_iter().map(of).collect()
}

fn load(name: &str, figures: &[(&str, f64)]) -> (String, Vec<(String, f64)>) {
    let figures = figures.iter().map(|(name, figure)| ((*name).to_owned(), *figure));
    (name.to_owned(), figures.collect())
}

/// From the part for Excel on.
fn excel(text: &str) -> &str {
    &text[text.find("\"Throughput report").unwrap()..]
}

#[test]
fn threads_are_read_as_processes_are() {
    let figures = [
        ("write", 4_716_634.38),
        ("rewrite", 5_888_016.75),
        ("read", 12_302_564.5),
        ("reread", 6_178_018.5),
    ];
    assert_eq!(loads(THREADS), [load("iozone -s 4096k -r 64k -t 2", &figures)]);
    let told = &parse(THREADS).unwrap()[0];
    assert_eq!(
        (&told.workload.params["size"], told.phases[0].write.bytes),
        (&(4 << 20).into(), 8 << 20)
    );
    assert_eq!(loads(excel(THREADS)), [load("iozone -r 64k", &figures)]);
}

#[test]
fn each_number_of_processes_is_a_run() {
    let names = ["write", "rewrite", "random read", "random write"];
    let named = |figures: [f64; 4]| names.into_iter().zip(figures).collect::<Vec<_>>();
    let one = named([2_464_545.75, 4_556_021.0, 6_585_339.0, 4_205_798.5]);
    let two = named([2_968_774.31, 3_930_553.12, 5_278_308.5, 7_162_547.75]);
    let runs =
        [load("iozone -s 4096k -r 64k -t 1", &one), load("iozone -s 4096k -r 64k -t 2", &two)];
    assert_eq!(loads(PROCESSES), runs);
    let columns = [load("iozone -r 64k, column 1", &one), load("iozone -r 64k, column 2", &two)];
    assert_eq!(loads(excel(PROCESSES)), columns);
    // Without the lines that tell the sizes.
    let cut: String = PROCESSES
        .lines()
        .filter(|line| !line.contains("Each process"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(loads(&cut), [load("iozone -t 1", &one), load("iozone -t 2", &two)]);
}

#[test]
fn several_runs_in_a_file_are_repeats() {
    let twice = loads(&format!("{THREADS}{THREADS}"));
    assert_eq!(twice, [loads(THREADS), loads(THREADS)].concat());
    let part = excel(THREADS);
    assert_eq!(loads(&format!("{part}{part}")), [loads(part), loads(part)].concat());
}

const EXCEL: &str = "\
\"Writer report\"
        \"16\"  \"64\"  \"128\"
\"64\"   1001  1002 
\"65536\"   0  1003  1004 

\"Re-writer report\"
        \"16\"  \"64\"  \"128\"
\"64\"   2001  2002 
\"65536\"   0  2003  2004 

\"Re-Fread report\"
        \"16\"  \"64\"  \"128\"
\"64\"   3001  3002 
\"65536\"   0  3003  3004 

\"Writer CPU utilization report (Zero values should be ignored)\"
        \"16\"  \"64\"  \"128\"
\"64\"    50.00    60.00 
";

#[test]
fn excels_matrices_are_read_where_they_are_all_there_is() {
    let cell = |name: &str, ones: f64| {
        load(
            name,
            &[("write", 1000.0 + ones), ("rewrite", 2000.0 + ones), ("freread", 3000.0 + ones)],
        )
    };
    let cells = [
        cell("iozone -s 64k -r 16k", 1.0),
        cell("iozone -s 64k -r 64k", 2.0),
        cell("iozone -s 65536k -r 64k", 3.0),
        cell("iozone -s 65536k -r 128k", 4.0),
    ];
    assert_eq!(loads(EXCEL), cells);
    assert_eq!(parse(EXCEL).unwrap()[2].phases[0].write.bytes, 64 << 20);
    assert_eq!(loads(&format!("{EXCEL}{EXCEL}")), [cells.clone(), cells].concat());
    let table = "
              kB  reclen    write  rewrite    read    reread
              64      16     1001     2001
Excel output is below:
";
    let only = [load("iozone -s 64k -r 16k", &[("write", 1001.0), ("rewrite", 2001.0)])];
    assert_eq!(loads(&format!("{table}{EXCEL}")), only);
    let wide = EXCEL.replace("\"65536\"   0  1003", "\"65536\"   0  0  1003");
    assert_eq!(Tool::Iozone.parse(&wide).unwrap_err().line, 4);
}

#[test]
fn what_counts_operations_or_times_is_refused() {
    let head = [
        "\tOPS Mode. Output is in operations per second.",
        "\tMicroseconds/op Mode. Output is in microseconds per operation.",
    ];
    for head in head {
        let text = format!("{head}\n{THREADS}");
        assert_eq!(Tool::Iozone.parse(&text).unwrap_err().line, 1);
    }
    let cut = THREADS.replace("kB/sec", "ops/sec");
    assert!(Tool::Iozone.parse(&cut).unwrap_err().why.contains("operations"));
    let part = excel(THREADS).replace("Output is in kBytes/sec", "Output is in ops/sec");
    assert_eq!(Tool::Iozone.parse(&part).unwrap_err().line, 3);
}

#[test]
fn text_without_results_is_not_called_too_fast() {
    let error = Tool::Iozone.parse("iozone test complete.\n").unwrap_err().to_string();
    assert!(error.contains("nothing that iozone prints as a result"), "{error}");
}
