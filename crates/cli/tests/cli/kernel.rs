//! From our `create` and `serve` to the kernel's md, and back.

use crate::support::{Lab, installed, not_run, pattern};
use lapstrake_kernel_md::{Judge, Kernel, available_or_say, has_level};

#[test]
fn the_kernel_reads_what_was_served_and_we_what_it_wrote() {
    let what = "arrays served by us in the kernel's hands";
    if !available_or_say(what) {
        return;
    }
    if !installed("nbdcopy") {
        return not_run(what, "nbdcopy is not installed");
    }
    for shape in ["-l5 -c64", "-l1 -b internal", "-l10 -p f2 -e 1.0", "-l6 -n4 -e 0.90"] {
        there_and_back(shape);
    }
}

fn there_and_back(shape: &str) {
    let members = if shape.contains("-n4") { "m0 m1 m2 m3" } else { "m0 m1 m2" };
    let lab = Lab::new(&[24, 24, 24, 24]);
    lab.run(&format!("create data --assume-clean {shape} {members}")).ok();
    let server = lab.serve(&format!("{members} --name data"));
    let bytes = server.facts["array_bytes"].as_u64().unwrap() as usize;
    let contents = pattern(11, bytes);
    std::fs::write(lab.path("in"), &contents).unwrap();
    lab.other(&format!("nbdcopy --flush in {}", server.uri())).unwrap().ok();
    lab.run("stop data").ok();
    drop(server);

    let kernel =
        members.split(' ').fold(Kernel::new(), |kernel, name| kernel.member(lab.path(name)));
    let script = "set -e
        mdadm --assemble --quiet /dev/md0 /dev/ubd[a-d] >&2
        mdadm --detail /dev/md0 | grep 'State :' | head -1
        sha256sum < /dev/md0
        tr '\\0' '\\252' < /dev/zero | dd of=/dev/md0 bs=64k seek=3 count=5 iflag=fullblock conv=fsync 2>/dev/null
        mdadm --wait /dev/md0 || true
        mdadm --stop --quiet /dev/md0";
    let output = kernel.run(script).unwrap();
    assert!(output.success(), "{shape}: {output}");
    assert!(output.text().contains("State : clean"), "{shape}: {output}");
    let sum = lab.other("sha256sum in").unwrap().ok().out;
    let sum = sum.split_whitespace().next().unwrap();
    assert!(output.text().contains(sum), "{shape}: {output}");

    let mut expected = contents;
    expected[3 << 16..8 << 16].fill(0o252);
    lab.run(&format!("cat -o out {members}")).ok();
    assert!(lab.read("out") == expected, "{shape}: what the kernel wrote");
    assert_eq!(lab.run(&format!("scan {members}")).code, 0, "{shape}");
}

/// Arrays of the kernel, assembled and idle, and what `mdadm --detail` says of them.
const DETAILS: &str = r#"
set -e
n=0
show() {
    echo "ARRAY $*"
    members=
    for member in $*; do members="$members $(attach $DIR/$member)"; done
    mdadm --assemble --run --quiet /dev/md0 $members >&2
    mdadm --detail /dev/md0
    mdadm --stop --quiet /dev/md0
}
make() {
    members=
    for member in $1; do members="$members $(attach $DIR/$member)"; done
    shift
    mdadm --create /dev/md0 --run --quiet --assume-clean "$@" $members >&2
    mdadm --stop --quiet /dev/md0
}
make "a0 a1 a2" -l5 -n3 -b internal
make "b0 b1" -l1 -n2 -e 0.90
make "c0 c1 c2 c3" -l10 -n4 -e 1.0 -c64
make "d0 d1 d2" -l10 -n3 -p f2
make "e0 e1 e2 e3" -l6 -n4 -p parity-first -e 1.1
make "f0 f1" -l0 -n2
! grep -q '\[linear\]' /proc/mdstat || make "g0 g1" -llinear -n2
make "h0 h1 h2" -l4 -n2 -x1 -e 0.90
show a0 a1 a2; show a0 a2; show b0 b1; show c0 c1 c2 c3; show d0 d1 d2; show e0 e1 e2 e3; show e0 e3
show f0 f1; show h0 h1 h2; ! grep -q '\[linear\]' /proc/mdstat || show g0 g1
calm
"#;

#[test]
fn detail_says_what_mdadm_says_of_the_same_array() {
    let what = "detail beside mdadm --detail";
    if !available_or_say(what) {
        return;
    }
    let lab = Lab::new(&[]);
    for array in 'a'..='h' {
        (0..4).for_each(|n| lab.file(&format!("{array}{n}"), 24 << 20));
    }
    let dir = lab.path("").display().to_string();
    let output = Kernel::new().run(&format!("DIR={dir}\n{DETAILS}")).unwrap();
    assert!(output.success(), "{output}");
    let text = output.text();
    let arrays: Vec<&str> = text.split("ARRAY ").skip(1).collect();
    // Not every kernel is built with linear.
    let has_linear = has_level(Judge::chosen(), "linear");
    if !has_linear {
        lapstrake_not_run::left_out("details of a linear: the judge's kernel has none");
    }
    assert_eq!(arrays.len(), if has_linear { 10 } else { 9 }, "{output}");
    for array in arrays {
        let (members, theirs) = array.split_once('\n').unwrap();
        let server = lab.serve(&format!("--degraded --name x {members}"));
        let ours = lab.run("detail x").out;
        server.stop();
        assert_eq!(comparable(&ours), comparable(theirs), "{members}\n{ours}\n{theirs}");
    }
}

/// The lines that both print, without what differs by nature: the device's name, times, the
/// members' numbers and names in `/dev`, and the lines about serving that follow in ours.
fn comparable(detail: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut table = false;
    for line in detail.lines().skip(1) {
        if line.contains("Served At :") {
            break;
        }
        table |= line.contains("RaidDevice State");
        let (label, value) = line.split_once(" : ").unwrap_or((line, ""));
        match label.trim() {
            // The guest has no time zones.
            "Creation Time" | "Update Time" | "Events" => {}
            "Name" | "UUID" => {
                let value = value.split("(local to").next().unwrap().trim();
                lines.push(format!("{label} : {value}"));
            }
            _ if table && line.trim().starts_with(|c: char| c.is_ascii_digit()) => {
                let words: Vec<&str> = line.split_whitespace().collect();
                let state = words[4..].iter().take_while(|word| !word.contains("/dev/"));
                let own_name = |word: &&&str| word.len() != 2 && !word.starts_with('(');
                let state: Vec<&str> = state.filter(own_name).copied().collect();
                lines.push(format!("{} {} {}", words[0], words[3], state.join(" ")));
            }
            _ => lines.push(line.trim_end().to_owned()),
        }
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}
