//! From our `create` and `serve` to the kernel's md, and back.

mod support;

use lapstrake_kernel_md::{Kernel, available_or_say};
use support::{Lab, installed, not_run, pattern};

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
