//! What job files mean, and what is refused.

use super::*;

fn jobs(text: &str) -> Vec<Job> {
    JobFile::parse(text).unwrap_or_else(|why| panic!("{why}")).jobs
}

fn refused(text: &str) -> String {
    JobFile::parse(text).unwrap_err()
}

#[test]
fn sections_take_what_is_global_above_them_and_stonewalls_part_groups() {
    let text = "# a comment\n; another\n[global]\ndirect=1\nioengine=libaio\niodepth=8\nbs=64k\n\
         [fill]\nrw=write ; in order\nsize=1g# all of it\n\n[read]\nstonewall\nrw=randread\nbs=4k\nruntime=30\ntime_based\nnumjobs=4\n\
         [global too]\niodepth=2\n[more]\nreadwrite=randrw\nrwmixread=70\nsize=50%\n";
    let all = jobs(text);
    let [fill, read, more] = &all[..] else { panic!("{all:?}") };
    assert_eq!((fill.group, read.group, more.group), (0, 1, 1));
    assert_eq!(
        (fill.reads, fill.is_random, fill.depth, fill.size),
        (0.0, false, 8, Extent::Bytes(1 << 30))
    );
    assert_eq!(fill.blocks[1], [(65536, 1.0)]);
    assert_eq!((read.reads, read.is_random, read.processes), (1.0, true, 4));
    assert_eq!((read.runtime, read.is_timed), (Some(Duration::from_secs(30)), true));
    assert_eq!((more.reads, more.depth, more.size), (0.7, 2, Extent::Share(0.5)));
}

#[test]
fn blocks_are_of_reads_and_writes_and_may_be_split() {
    let of = |line: &str| jobs(&format!("[a]\ndirect=1\nrw=randrw\n{line}\n"))[0].blocks.clone();
    assert_eq!(of("bs=8k"), [vec![(8192, 1.0)], vec![(8192, 1.0)]]);
    assert_eq!(of("blocksize=4k,1m"), [vec![(4096, 1.0)], vec![(1 << 20, 1.0)]]);
    assert_eq!(of("bs=,16k"), [vec![(4096, 1.0)], vec![(16384, 1.0)]]);
    let [reads, writes] = of("bssplit=4k/60:64k/40,8k:16k");
    assert_eq!(reads, [(4096, 0.6), (65536, 0.4)]);
    assert_eq!(writes, [(8192, 0.5), (16384, 0.5)]);
}

#[test]
fn a_synchronous_engine_has_one_request_under_way_and_flushes_hold_their_maker_up_unless_queued() {
    let of = |engine: &str| {
        let job = &jobs(&format!("[a]\ndirect=1\nrw=write\niodepth=16\nfsync=4\n{engine}\n"))[0];
        (job.depth, job.waits_for_flushes, job.flush_every)
    };
    assert_eq!(of(""), (1, true, Some(4)));
    assert_eq!(of("ioengine=psync"), (1, true, Some(4)));
    assert_eq!(of("ioengine=libaio"), (16, true, Some(4)));
    assert_eq!(of("ioengine=io_uring"), (16, false, Some(4)));
}

#[test]
fn reports_are_of_jobs_or_with_group_reporting_of_all_that_runs_at_the_same_time() {
    let file = |more: &str| {
        JobFile::parse(&format!(
            "[global]\ndirect=1\n{more}\n[a]\nrw=read\n[b]\nrw=read\n[c]\nstonewall\nrw=write\n"
        ))
        .unwrap()
        .reports()
    };
    assert_eq!(file(""), [vec![0], vec![1], vec![2]]);
    assert_eq!(file("group_reporting=1"), [vec![0, 1], vec![2]]);
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    let told = refused("[a]\ndirect=1\nrate_iops=100\nrw=randread:8\n");
    assert_eq!(
        told,
        "line 3: rate_iops is not understood; line 4: rw = randread:8 is not understood"
    );
    // Once, however many sections have it.
    let told = refused("[global]\ndirect=1\nverify=crc32c\n[a]\nrw=write\n[b]\nrw=write\n");
    assert_eq!(told, "line 3: verify is not understood");
    for (line, why) in [
        ("ioengine=mmap", "ioengine = mmap is not understood"),
        ("bs=1000", "blocks of 1000 bytes"),
        ("bssplit=4k/60:8k/20", "shares come to 80 %"),
        ("time_based", "time_based needs a runtime"),
        ("numjobs=0", "numjobs = 0 is not from 1"),
        ("direct=0", "page cache"),
        ("size=lots", "size = lots is not understood"),
        ("runtime=5x", "runtime = 5x is not understood"),
    ] {
        let told = refused(&format!("[a]\ndirect=1\n{line}\n"));
        assert!(told.contains(why), "{line}: {told}");
    }
    assert!(refused("[a]\nrw=read\n").contains("[a] has no direct = 1"));
    assert!(refused("rw=read\n").contains("line 1: rw stands before any section"));
    assert!(refused("[global]\ndirect=1\n").contains("no job"));
}
