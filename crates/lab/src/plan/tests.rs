use super::*;

fn parse(text: &str) -> Result<Plan, Vec<Problem>> {
    Plan::parse(text, Path::new("/plans"))
}

fn good(text: &str) -> Plan {
    parse(text).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// The problems as "LINE: text".
fn problems(text: &str) -> Vec<String> {
    let all = parse(text).expect_err("something is wrong");
    all.iter().map(|p| format!("{}: {}", p.line.unwrap_or(0), p.text)).collect()
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.arrays.iter().map(|array| array.name.as_str()).collect()
}

const DISKS: &str = r#"
name = "t"
[[disk]]
make = ["a", "b", "c", "d"]
size = "64M"
[[workload]]
name = "read"
pattern = "sequential"
"#;

fn with(rest: &str) -> String {
    format!("{DISKS}{rest}")
}

#[test]
fn the_least_plan_has_defaults() {
    let plan = good(&with("[[array]]\nlevel = 5\nmembers = 3\n"));
    assert_eq!(names(&plan), ["raid5"]);
    assert_eq!(plan.rules.repeats, 5);
    assert_eq!(plan.rules.order, Order::Abba);
    assert_eq!(plan.arrays[0].disks(), ["a", "b", "c"]);
    assert_eq!(plan.arrays[0].states, [State::Healthy]);
    let Load::Io(io) = &plan.workloads[0].load else { panic!("{:?}", plan.workloads[0]) };
    assert_eq!((io.block, io.depth, io.threads, io.read, io.direct), (4096, 1, 1, 1.0, true));
}

#[test]
fn a_matrix_is_unfolded_and_combinations_that_come_to_the_same_are_one() {
    let plan = good(&with(
        "[[array]]\nlevel = [0, 1, 5]\nchunk = [\"64K\", \"512K\"]\nbitmap = [\"none\", \"internal\"]\nmembers = 3\n",
    ));
    let expected = [
        "raid0-64K",
        "raid0-512K",
        "raid1-bitmap-none",
        "raid1-bitmap-internal",
        "raid5-64K-bitmap-none",
        "raid5-64K-bitmap-internal",
        "raid5-512K-bitmap-none",
        "raid5-512K-bitmap-internal",
    ];
    assert_eq!(names(&plan), expected);
}

#[test]
fn members_are_a_dimension_and_what_cannot_be_is_left_out_aloud() {
    let plan = good(&with("[[array]]\nlevel = [5, 6]\nmembers = [3, 4]\n"));
    assert_eq!(names(&plan), ["raid5-a+b+c", "raid5-of4", "raid6-of4"]);
    assert_eq!(plan.notes, ["left out: raid6 a+b+c in-process: raid6 needs 4 members, not 3"]);
}

#[test]
fn lists_of_as_many_members_are_told_apart_however_long() {
    let lists = r#"[["a", "b", "c", "d"], ["d", "c", "b", "a"], ["a", "b", "c"]]"#;
    let plan = good(&with(&format!("[[array]]\nlevel = 5\nmembers = {lists}\n")));
    assert_eq!(names(&plan), ["raid5-a+b+c+d", "raid5-d+c+b+a", "raid5-a+b+c"]);
}

#[test]
fn layouts_go_to_the_levels_that_have_them() {
    let plan = good(&with(
        "[[array]]\nlevel = [0, 5, 10]\nlayout = [\"n2\", \"o2\", \"f2\"]\nmembers = 4\n",
    ));
    assert_eq!(names(&plan), ["raid0", "raid5", "raid10-n2", "raid10-o2", "raid10-f2"]);
}

#[test]
fn systems_are_a_dimension() {
    let plan = good(&with(
        "[[disk]]\nmake = [\"e\", \"f\"]\nsize = \"128M\"\n[[array]]\nsystem = [\"lapstrake\", \"btrfs\"]\nlevel = [0, 1]\n\
         members = [\"e\", \"f\"]\nfilesystem = \"ext4\"\n",
    ));
    assert_eq!(names(&plan), ["raid0", "raid1", "btrfs-raid0", "btrfs-raid1"]);
    assert_eq!(plan.arrays[0].shape.over, Over::Loop);
    assert!(plan.arrays.iter().all(Array::has_filesystem));
}

#[test]
fn states_name_members() {
    let plan = good(&with(
        "[[array]]\nlevel = [0, 5]\nmembers = 3\nstates = [\"healthy\", { missing = \"b\" }, \"rebuilding\"]\n",
    ));
    let b = || vec!["b".to_owned()];
    assert_eq!(plan.arrays[0].states, [State::Healthy]);
    let expected = [State::Healthy, State::Degraded(b()), State::Rebuilding(vec!["c".into()])];
    assert_eq!(plan.arrays[1].states, expected);
    assert_eq!(plan.notes.len(), 2, "{:?}", plan.notes);
}

#[test]
fn arrays_nest() {
    let plan = good(&with(
        "[[array]]\nname = \"left\"\nlevel = 1\nmembers = [\"a\", \"b\"]\nmeasure = false\n\
         [[array]]\nname = \"right\"\nlevel = 1\nmembers = [\"c\", \"d\"]\nmeasure = false\n\
         [[array]]\nname = \"both\"\nlevel = 0\nmembers = [\"left\", \"right\"]\n",
    ));
    assert_eq!(plan.subjects().count(), 1);
    assert_eq!(plan.arrays[2].disks(), ["a", "b", "c", "d"]);
    let twice = with(
        "[[array]]\nname = \"left\"\nlevel = 1\nmembers = [\"a\", \"b\"]\nmeasure = false\n\
         [[array]]\nname = \"both\"\nlevel = 0\nmembers = [\"left\", \"b\"]\n",
    );
    assert_eq!(problems(&twice), ["17: disk \"b\" is in the array twice"]);
}

#[test]
fn a_disk_of_a_nested_array_can_be_missing() {
    let pairs = "[[array]]\nname = \"left\"\nlevel = 1\nmembers = [\"a\", \"b\"]\nmeasure = false\n\
         [[array]]\nname = \"right\"\nlevel = 1\nmembers = [\"c\", \"d\"]\nmeasure = false\n\
         [[array]]\nname = \"both\"\nlevel = 0\nmembers = [\"left\", \"right\"]\n";
    let states = |states: &str| with(&format!("{pairs}states = [\"healthy\", {states}]\n"));
    let plan = good(&states("{ missing = [\"b\", \"c\"] }"));
    let both = State::Degraded(vec!["b".into(), "c".into()]);
    assert_eq!(plan.arrays[2].states, [State::Healthy, both.clone()]);
    let tree =
        crate::subject::tree::tree(&plan, &plan.arrays[2], &both, &crate::subject::tree::place);
    assert_eq!(tree.matches(", left out").count(), 2, "{tree}");
    for (wrong, why) in [
        ("{ missing = [\"a\", \"b\"] }", "a raid1 of 2 cannot lose 2"),
        ("{ missing = [\"left\"] }", "a raid0 of 2 cannot lose 1"),
        ("{ rebuilding = \"b\" }", "only its own members are rebuilt, not those of arrays in it"),
    ] {
        let notes = good(&states(wrong)).notes;
        assert!(notes[0].ends_with(why), "{notes:?}");
    }
    let inner = pairs.replacen("measure = false", "measure = false\nstates = [\"degraded\"]", 1);
    assert!(problems(&with(&inner))[0].contains("an array that is not measured has no states"));
}

#[test]
fn a_raid4_is_degraded_without_data_not_without_its_parity() {
    for (level, expected) in [(4, "b"), (5, "c")] {
        let array = format!("[[array]]\nlevel = {level}\nmembers = 3\nstates = [\"degraded\"]\n");
        assert_eq!(good(&with(&array)).arrays[0].states, [State::Degraded(vec![expected.into()])]);
    }
}

#[test]
fn errors_have_their_line() {
    let cases = [
        (
            "[[array]]\nlevel = 7\nmembers = 3\n",
            "10: \"7\" is not a level: linear, 0, 1, 4, 5, 6 or 10",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = [\"a\", \"x\"]\n",
            "11: there is no disk \"x\", and no array of that name above",
        ),
        ("[[array]]\nlevel = 5\nmembers = 9\n", "11: 9 members, but the plan has 4 disks"),
        (
            "[[array]]\nlevel = 6\nmembers = 3\n",
            "9: the array cannot be built: raid6 needs 4 members, not 3",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\nchunk = \"3K\"\n",
            "12: a chunk of 3072 bytes: it is a power of two, 4K at least",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\nstates = [\"broken\"]\n",
            "12: \"broken\" is no state: say",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\nlayout = \"n2\"\n",
            "12: \"n2\" is a layout of none of the levels",
        ),
        (
            "[[array]]\nlevel = 0\nmembers = 3\nstates = [\"degraded\"]\n",
            "12: raid0 can be in none of these states",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\nstripe-cache = 8\n",
            "12: a stripe cache of 8 pages: it has 32 to 32768",
        ),
        (
            "[[disk]]\nmake = [\"a\"]\nsize = \"64M\"\n[[array]]\nlevel = 5\nmembers = 3\n",
            "10: there is another disk \"a\"",
        ),
        (
            "[[disk]]\nname = \"x\"\n[[array]]\nlevel = 5\nmembers = 3\n",
            "9: a disk has a path, or make and size",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\n[[workload]]\nname = \"w\"\n",
            "13: a workload has a pattern",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\n[[workload]]\nname = \"w\"\npattern = \"zipf\"\nstreams = 3\n",
            "13: streams has no effect on this kind of workload; take it out",
        ),
        (
            "[[array]]\nlevel = 5\nmembers = 3\n[[workload]]\nname = \"w\"\nlike = \"bonnie++\"\n",
            "13: workload \"w\" runs on none of the arrays: it needs a filesystem on the array",
        ),
        (
            "[run]\nrepeats = 0\n[[array]]\nlevel = 5\nmembers = 3\n",
            "10: no repeat measures nothing; 5 are the default",
        ),
        ("[[array]]\nlevel = 5\nmembers = 3\n[run]\ntime = \"soon\"\n", "13: \"soon\" is no time"),
        (
            "[[array]]\nlevel = 0\nmembers = 2\n[[workload]]\nname = \"w\"\npattern = \"zones\"\nzones = 4\nwarm-up = \"1s\"\n",
            "13: warm-up has no effect on this kind of workload; take it out",
        ),
        (
            "[[array]]\nlevel = 10\nlayout = \"n9\"\nmembers = 3\n",
            "9: the array cannot be built: RAID10 with 9 copies cannot live on 3 members",
        ),
        (
            "[[array]]\nlevel = 5\nchunk = \"1T\"\nmembers = 3\n",
            "9: the array cannot be built: member \"a\": a device of 65536 KiB is too small",
        ),
        (
            "[[array]]\nlevel = 1\nbitmap = \"internal\"\nbitmap-chunk = \"5K\"\nmembers = 2\n",
            "9: the array cannot be built: a bitmap chunk of 5120 bytes is not possible here",
        ),
        (
            "[[array]]\nlevel = 0\nmembers = 2\nfilesystem = \"ext4\"\n[[workload]]\nname = \"w\"\nprogram = \"pgbench\"\nscale = 0\n",
            "16: scale is 1 at least",
        ),
        (
            "[[array]]\nlevel = 0\nmembers = 2\nfilesystem = \"ext4\"\n[[workload]]\nname = \"w\"\nprogram = \"pgbench\"\nclients = 0\n",
            "16: clients is 1 at least",
        ),
        (
            "[[array]]\nlevel = 0\nmembers = 2\n[[workload]]\nname = \"w\"\npattern = \"uniform\"\nfrom = \"1G\"\n",
            "13: workload \"w\" runs on none of the arrays: its range begins where the array has ended",
        ),
    ];
    for (rest, expected) in cases {
        let found = problems(&with(rest));
        assert!(
            found.iter().any(|found| found.starts_with(expected)),
            "{rest}\nexpected {expected}\nfound {found:#?}"
        );
    }
}

#[test]
fn what_toml_refuses_has_its_line_too() {
    assert!(problems("name = \"t\"\nname = \"u\"\n")[0].starts_with("2: "));
    let unknown = problems(&with("[[array]]\nlevel = 5\nmembers = 3\nchunks = 4\n"));
    assert_eq!(unknown, ["12: unknown field `chunks`; did you mean chunk?"]);
    let unknown = problems(&with("[[array]]\nlevel = 5\nmembers = 3\nxyz = 4\n"));
    assert!(unknown[0].starts_with("12: unknown field `xyz`, expected one of `name`"));
}

#[test]
fn all_that_is_wrong_is_told_at_once_whoever_finds_it() {
    let rest = "[[array]]\nlevel = 5\nmembers = 3\nchunks = 4\nchunk = \"64KB\"\n\
                [[array]]\nlevel = 7\nmembers = 3\n\
                [[array]]\nlevel = 1\nmembers = [\"a\", \"e\"]\n\
                [[workload]]\npattern = \"sequental\"\n\
                [[workload]]\nname = \"w\"\npattern = \"uniform\"\ndepth = 0\n";
    let found = problems(&with(rest));
    let expected = [
        "12: unknown field `chunks`; did you mean chunk?",
        "13: \"64KB\" is not a size (digits, then K, M, G or T for powers of 1024); did you mean 64K?",
        "15: \"7\" is not a level",
        "19: there is no disk \"e\", and no array of that name above",
        "20: `name` is missing",
        "21: unknown variant `sequental`; did you mean sequential?",
        "25: ",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} is not {expected}");
    }
}

#[test]
fn values_of_another_type_are_told_in_words() {
    let told = |streams: &str| {
        let workload =
            format!("[[workload]]\nname = \"w\"\npattern = \"streams\"\nstreams = {streams}\n");
        problems(&with(&workload)).remove(0)
    };
    assert_eq!(told("[2, 4]"), "12: a list where a whole number from 0 to 4294967295 must be");
    assert_eq!(
        told("\"x\""),
        "12: the text \"x\" where a whole number from 0 to 4294967295 must be"
    );
    assert_eq!(told("-3"), "12: -3 where a whole number from 0 to 4294967295 must be");
    assert_eq!(told("2.5"), "12: 2.5 where a whole number from 0 to 4294967295 must be");
    assert_eq!(told("{ a = 1 }"), "12: a table where a whole number from 0 to 4294967295 must be");
    let direct = problems(&with("[[workload]]\nname = \"w\"\ndirect = 1\n")).remove(0);
    assert_eq!(direct, "11: 1 where true or false must be");
}

#[test]
fn all_problems_are_told_at_once() {
    let all = problems(&with(
        "[[array]]\nlevel = 5\nmembers = [\"x\"]\n[[array]]\nlevel = 6\nmembers = 2\n[run]\nrepeats = 0\n",
    ));
    assert_eq!(all.len(), 3, "{all:?}");
}

#[test]
fn workloads_are_matrices_too() {
    let plan = good(&with(
        "[[array]]\nlevel = 5\nmembers = 3\n[[workload]]\nname = \"mix\"\npattern = \"uniform\"\nread = [\"0%\", \"70%\"]\ndepth = [1, 32]\n",
    ));
    let names: Vec<&str> = plan.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["read", "mix r0 q1", "mix r0 q32", "mix r70 q1", "mix r70 q32"]);
}

#[test]
fn what_does_not_fit_is_told_in_one_line_a_reason() {
    let plan = good(&with(
        "[[array]]\nlevel = [0, 1, 5, 6, 10]\nmembers = 4\n[[array]]\nname = \"e\"\nlevel = 5\nmembers = 4\nfilesystem = \"ext4\"\n\
         [[workload]]\nname = \"b\"\nlike = \"bonnie++\"\n",
    ));
    let expected =
        "b does not run on raid0, raid1, raid5 and 2 more: it needs a filesystem on the array";
    assert_eq!(plan.notes, [expected]);
}

#[test]
fn images_too_small_for_btrfs_or_zfs_are_told() {
    let small = "[[disk]]\nmake = [\"s\", \"t\"]\nsize = \"63M\"\n[[array]]\nsystem = \"zfs\"\nlevel = 1\nmembers = [\"s\", \"t\"]\n";
    let expected =
        "12: the array cannot be built: ZFS needs 64M of each member, more than \"s\" has";
    assert_eq!(problems(&with(small)), [expected]);
    let told = problems(&with("[[array]]\nsystem = \"btrfs\"\nlevel = 1\nmembers = 2\n"));
    let expected =
        "9: the array cannot be built: btrfs needs 125M of each member, more than \"a\" has";
    assert_eq!(told, [expected]);
}

/// Those that are shipped can be carried out as they stand.
#[test]
fn programs_run_where_the_array_is() {
    for (load, key) in [
        ("program = \"fio\"\njob = \"[j]\\nfilename=/dev/sdb\\n\"", "filename"),
        ("program = \"fio\"\njob = \"include other.fio\\n[j]\\n\"", "include"),
        ("program = \"bonnie++\"\narguments = [\"-d\", \"/other\"]", "-d"),
    ] {
        let text = format!(
            "name = \"t\"\n[[array]]\nsystem = \"existing\"\npath = \"/mnt\"\n[[workload]]\nname = \"w\"\n{load}\n"
        );
        let why = &Plan::parse(&text, Path::new("/p")).unwrap_err()[0].text;
        assert!(why.contains(key) && why.contains("leave it out"), "{why}");
    }
}

#[test]
fn shipped_plans_are_sound() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plans");
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let plan = Plan::read(&path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(Some(plan.name.as_str()), path.file_stem().and_then(|name| name.to_str()));
        assert!(plan.subjects().count() > 1, "{}: nothing to compare", plan.name);
        count += 1;
    }
    assert_eq!(count, 10);
    assert_eq!(Plan::quick(), Plan::read(&directory.join("quick.toml")).unwrap());
}

#[test]
fn what_is_said_for_predictions_is_looked_up_and_faults_have_their_lines() {
    let text = |more: &str, array: &str| {
        format!(
            "name = \"t\"\n[[controller]]\nname = \"hba\"\ncache = \"64M\"\n{more}\n[[disk]]\nmake = [\"a\", \"b\", \"c\", \"d\"]\n\
             size = \"64M\"\nsize-predicted = \"50%\"\ncontroller = \"hba\"\n[[array]]\n{array}\n[[workload]]\nname = \"b\"\n\
             like = \"bonnie++\"\nversion = \"1.03\"\nsize = \"64M\"\nsize-predicted = \"4G\"\n"
        )
    };
    let volume =
        "system = \"controller\"\nmembers = 4\nlevel = 10\nchunk = \"256K\"\nfilesystem = \"ext3\"";
    let plan = good(&text("run = \"512K\"\n[care]\nyears = 3\nscrub = \"0h\"", volume));
    assert_eq!(plan.arrays[0].shape.chunk, Some(256 << 10));
    assert_eq!((plan.controllers[0].cache, plan.controllers[0].run), (64 << 20, Some(512 << 10)));
    assert_eq!((plan.care.years, plan.care.scrub_hours), (3.0, None));
    assert_eq!(plan.disks[0].model.size, Some(Place::Share(0.5)));
    let Load::Like(Like::Bonnie { version, size, size_predicted, .. }) = plan.workloads[0].load
    else {
        panic!("{:?}", plan.workloads[0])
    };
    assert_eq!((version, size, size_predicted), (BonnieVersion::V1_03, 64 << 20, 4 << 30));
    let wrong = |more: &str, array: &str, line: usize, words: &str| {
        let found = problems(&text(more, array));
        let is_it = |text: &String| text.starts_with(&format!("{line}: ")) && text.contains(words);
        assert!(found.iter().any(is_it), "{words}: {found:?}");
    };
    wrong("run = \"1K\"", volume, 5, "4K at once");
    wrong("[[controller]]\nname = \"hba\"\ncache = \"1M\"", volume, 6, "another controller");
    wrong("[machine]\nlow-memory = \"1M\"", volume, 6, "needs 16M");
    wrong("[care]\nyears = 0.0", volume, 6, "years are from 0.01 to 100");
    wrong("[care]\nscrub = \"1s\"", volume, 6, "from 0.01 to 36500");
    wrong("[care]\nspares = 1001", volume, 6, "spares are from 0 to 1000");
    let raid5 =
        "name = \"v\"\nsystem = \"controller\"\nmembers = 4\nlevel = 5\nfilesystem = \"ext3\"";
    wrong("", raid5, 12, "0, 1 and 10 are");
    let behind_none = text("", volume).replace("controller = \"hba\"", "");
    assert!(problems(&behind_none).iter().any(|text| text.contains("behind one [[controller]]")));
}

#[test]
fn arrays_nest_in_their_own_kind() {
    let pair = |system| {
        format!(
            "[[array]]\nname = \"p\"\nsystem = \"{system}\"\nlevel = 1\nmembers = 2\nmeasure = false\n"
        )
    };
    let above = "[[array]]\nname = \"s\"\nsystem = \"md\"\nlevel = 0\nmembers = [\"p\", \"c\"]\n";
    let plan = good(&with(&format!("{}{above}", pair("md"))));
    assert!(plan.arrays[1].is_only_predicted() && !plan.arrays[0].is_only_predicted());
    let found = problems(&with(&format!("{}{above}", pair("lapstrake"))));
    assert!(found[0].contains("one of its own kind"), "{found:?}");
}
