//! Promise: a RAID10 with near copies, or with copies in the next row, gets other members, another chunk or the other layout
//! while it is served; wherever it is left, it goes on here or in the kernel, and all bytes are there; what Linux's md
//! refuses is refused, and changes nothing.

use crate::reshaping::{
    WITHOUT_SPARE, all, create, half_done, kept, lab, lengthened, refused, survives_cuts,
};
use crate::support::md::Md;
use crate::support::{Lab, pattern};

/// How the array is made, of which members, what is asked for.
const RESHAPES: [(&str, &str, &str); 8] = [
    ("-l10 -c64", "m0 m1 m2 m3", "--raid-devices 5 m4"),
    ("-l10 -c64", "m0 m1 m2", "--raid-devices 4 m3"),
    ("-l10 -c64 -p o2 -e 1.1", "m0 m1 m2 m3", "--raid-devices 5 --chunk 32K m4"),
    ("-l10 -c64", "m0 m1 m2 m3", "--chunk 128K"),
    ("-l10 -c32", "m0 m1 m2", "--chunk 64K --layout o2"),
    ("-l10 -c64 -p o3", "m0 m1 m2 m3", "--layout n3 --raid-devices 5 m4"),
    // There is no room before the data: from the end on.
    ("-l10 -c64 -e 1.0 --size 18M", "m0 m1 m2 m3", "--chunk 32K"),
    ("-l10 -c64", "m0 m1 m2 m3 m4", "--raid-devices 4"),
];
const MIB: usize = 1 << 20;

/// The kernel does what is left: it reads these bytes, whatever it finds behind them, and copies agree everywhere.
fn is_finished_by_the_kernel(
    md: &mut Md,
    lab: &Lab,
    (members, spare): (&str, Option<&str>),
    bytes: &[u8],
    what: &str,
) {
    let (_, dump) = md.ends(lab, members, spare.map_or("", |_| WITHOUT_SPARE));
    let same = dump.iter().zip(bytes).take_while(|(one, other)| one == other).count();
    assert_eq!(same, bytes.len(), "{what}: the kernel reads otherwise");
}

#[test]
fn what_was_begun_here_is_carried_on_here_and_by_the_kernel() {
    let Some(mut md) = Md::boot("RAID10s whose reshape was begun here") else { return };
    for (options, members, wish) in RESHAPES {
        let (lab, all) = (lab(), all(members, wish));
        let bytes = half_done(&lab, options, members, wish);
        let copies = Lab::new(&[20; 5]);
        all.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        let given = lab.run(&format!("serve --reshape-position 0 {all}"));
        assert!(given.code == 1 && given.err.contains("not the place on record"), "{given:?}");
        let server = lab.serve_data(&format!("--shards 2 {all}"));
        lab.run("wait data").ok();
        let grown = lengthened(bytes.clone(), lab.contents(&server).len());
        assert!(lab.contents(&server) == grown, "{options}, {wish}: read afterwards");
        lab.run("check data").ok();
        lab.run("wait data").ok();
        assert_eq!(lab.detail()["mismatch_sectors"], 0, "{options}, {wish}");
        let (stays, goes) = kept(members, wish, &all);
        goes.map(|goes| lab.run(&format!("remove data {goes}")).ok());
        server.stop();
        md.agrees(&lab, stays, &grown);
        let what = format!("{options}, {wish}");
        is_finished_by_the_kernel(&mut md, &copies, (&all, goes), &bytes, &what);
    }
}

#[test]
fn a_reshape_that_the_kernel_began_is_carried_on() {
    let Some(mut md) = Md::boot("RAID10s whose reshape the kernel began") else { return };
    for (options, count, wish) in [
        ("-l10 -c64", 4, "--raid-devices 5"),
        ("-l10 -c64", 3, "--raid-devices 4"),
        ("-l10 -c64 -p o2", 4, "--raid-devices 5"),
        ("-l10 -c64", 4, "--chunk 32"),
        ("-l10 -c64 -p o2", 4, "--layout n2"),
    ] {
        let (lab, added) = (lab(), usize::from(wish.contains("devices")));
        let names: Vec<String> = (0..count + added).map(|index| format!("m{index}")).collect();
        let names = names.join(" ");
        let bytes = pattern(3, 64 * MIB);
        std::fs::write(lab.path("bytes"), &bytes).unwrap();
        let said = md.play(
            &lab,
            &names,
            &format!(
                "rm -rf /run/mdadm
                 quietly mdadm --create /dev/md0 --run --assume-clean {options} -n{count} \
                     ${{devices[@]:0:{count}}}
                 fill $dir/bytes >/dev/null
                 read -r size </sys/block/md0/size
                 for device in ${{devices[@]:{count}}}; do quietly mdadm /dev/md0 --add $device; done
                 reshape_part mdadm --grow /dev/md0 {wish}
                 quietly mdadm --stop /dev/md0
                 echo $size"
            ),
        );
        let filled = said.trim().parse::<usize>().unwrap() * 512;
        let missing = "m1";
        let copies = Lab::new(&[20; 5]);
        names.split(' ').for_each(|name| copies.write_at(name, 0, &lab.read(name)));
        let looked = lab.run(&format!("serve --read-only --run true {names}")).ok();
        let is_sure = looked.err.contains("a reshape from") && !looked.err.contains("seldom");
        assert!(is_sure, "{options}, {wish}: {looked:?}");
        let server = lab.serve_data(&format!("--shards 3 {names}"));
        let waited = lab.run("wait data");
        assert_eq!(waited.code, 0, "{options}, {wish}: {waited:?}, {}", lab.detail());
        let read = lab.contents(&server);
        assert!(read[..filled] == bytes[..filled], "{options}, {wish}");
        server.stop();
        md.agrees(&lab, &names, &lengthened(bytes[..filled].to_vec(), read.len()));

        let left: Vec<&str> = names.split(' ').filter(|name| *name != missing).collect();
        let server = copies.serve_data(&format!("--degraded {}", left.join(" ")));
        assert_eq!(copies.run("wait data").code, 3, "{options}: it is degraded");
        assert!(copies.contents(&server) == read, "{options}, {wish}, without {missing}");
        server.stop();
    }
}

#[test]
fn a_cut_at_any_moment_leaves_all_that_was_answered() {
    [RESHAPES[1], RESHAPES[4], RESHAPES[6]].into_iter().for_each(survives_cuts);
}

#[test]
fn what_linux_does_not_reshape_is_refused_and_stays_as_it_is() {
    let lab = lab();
    let refused = |wish: &str, says: &str| refused(&lab, wish, says);
    create(&lab, "-l10 -c64", "m0 m1 m2 m3");
    let server = lab.serve_data("--shards 2 m0 m1 m2 m3");
    refused("--layout f2", "far copies");
    refused("--layout n3", "keeps as many");
    refused("--layout o3", "keeps as many");
    refused("--level 1", "no way from this raid10 to a raid1");
    refused("--level 5 --raid-devices 2", "that would cut data");
    refused("--level 6 --raid-devices 5", "as many spares");
    refused("--raid-devices 3", "that would cut data");
    refused("--raid-devices 5", "as many spares");
    refused("--chunk 8M --layout o2", "behind its data");
    refused("--chunk 48K", "power of two");
    let already = lab.run("grow data --chunk 64K --layout n2").ok();
    assert!(already.out.contains("already"), "{already:?}");
    server.stop();

    // 405 chunks, of which four members have 404 with copies in the next row. That is as far as Linux would go.
    create(&lab, "-l10 -c64 -p n3 --force", "m0 m1 m2 m3");
    let server = lab.serve_data("--shards 2 m0 m1 m2 m3");
    refused("--level 5", "no way from this raid10 to a raid5");
    refused("--layout o3", "25856 KiB of the array would be left of the 25920 KiB");
    lab.run("add data m4").ok();
    refused("--layout o3 --raid-devices 5", "25856 KiB of the array would be left");
    server.stop();

    create(&lab, "-l10 -c64 -p f2 --force", "m0 m1 m2 m3");
    let server = lab.serve_data("--shards 2 m0 m1 m2 m3");
    refused("--chunk 32K", "far copies");
    refused("--layout n2", "far copies");
    refused("--level 6", "no way from this raid10 to a raid6");
    server.stop();

    create(&lab, "-l10 -c64 --force", "m0 m1 m2 m3");
    let server = lab.serve_data("--shards 2 m0 m1 m2 m3");
    lab.run("fail data m3").ok();
    refused("--level 6", "a member is missing");
    server.stop();
}
