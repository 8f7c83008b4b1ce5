//! The published cases, which plan rebuilds which, and what of these was chosen with arrays' rows in sight.

pub const MIB: f64 = 1_048_576.0;
pub const KIB: f64 = 1024.0;

/// A published case, and where its plan predicts it.
pub struct Source {
    /// Of the CSV and the plan.
    pub csv: &'static str,
    pub plan: &'static str,
    pub published: Published,
    pub columns: &'static [Column],
    /// Arrays and loads of the plan that are predicted; those without a name are.
    pub kept: &'static [&'static str],
    /// What else of the plan is not asked for: its text, and what stands there instead.
    pub trimmed: &'static [(&'static str, &'static str)],
    /// What is fitted, or was.
    pub parameters: &'static [Parameter],
    /// By row: the array's name in the trimmed plan, and its state.
    pub rows: &'static [(&'static str, &'static str, &'static str)],
}

/// Where a case's rows are, and what they may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// In the caller's directory.
    Given,
    /// Beside the plan, in `cases`; evidence for bars, as the given ones are.
    Beside,
    /// Beside the plan, and held out for good: nothing is chosen by them, no bar is made of them.
    HeldOut,
}

/// A column: workload, metric, and what one of its units is.
pub struct Column {
    pub name: &'static str,
    pub workload: &'static str,
    pub metric: &'static str,
    pub unit: Unit,
}

pub enum Unit {
    /// So many of the record's.
    Of(f64),
    /// Processor time of the metric, in per cent of the time that it takes.
    Percent,
}

const fn column(
    name: &'static str,
    workload: &'static str,
    metric: &'static str,
    unit: Unit,
) -> Column {
    Column { name, workload, metric, unit }
}

/// A figure that was chosen with rows of arrays in sight, so that it is chosen again without those that are judged.
pub struct Parameter {
    pub name: &'static str,
    /// In the plan, or in profiles of disks of the plan.
    pub of: Place,
    /// How the text says it, up to its value.
    pub key: &'static str,
    /// Values of its class of hardware. The first is what one would say without any array's row.
    pub values: &'static [&'static str],
}

/// Where a parameter is said.
pub enum Place {
    Plan,
    Profiles(&'static [&'static str]),
}

/// Of the home server: the seekers' writes out of a buffer, and where its partitions lie.
const HOME: &[Parameter] = &[
    Parameter {
        name: "where the home server's partitions lie",
        of: Place::Plan,
        key: "at = ",
        values: &["\"50%\"", "\"0%\"", "\"20%\"", "\"33%\""],
    },
    Parameter {
        name: "a SATA disk's time before a write out of its buffer",
        of: Place::Profiles(&["seagate-250-x510", "hitachi-80"]),
        key: "write_miss = ",
        values: &[
            "{ after_read = 0.250, after_write = 0.250 }",
            "{ after_read = 0.600, after_write = 0.600 }",
        ],
    },
];

const HEALTHY: &str = "healthy";

pub const SOURCES: &[Source] = &[
    Source {
        csv: "ide-2008",
        plan: "three-disks-2008",
        published: Published::Given,
        kept: &["single", "one-disk-raid0", "raid5", "bonnie++"],
        trimmed: &[
            ("[\"lapstrake\", \"md\"]", "\"md\""),
            (", [\"b\", \"c\"], [\"a\", \"b\", \"c\"]]", "]"),
            (
                "{ missing = \"a\" }, { missing = \"b\" }, { missing = \"c\" }",
                "{ missing = \"b\" }",
            ),
        ],
        parameters: &[
            Parameter {
                name: "rate of IDE cables",
                of: Place::Plan,
                key: "rate = ",
                values: &["100000000", "33000000", "66000000"],
            },
            Parameter {
                name: "an IDE disk's time before a write's data",
                of: Place::Profiles(&["ST3160215A", "ST340015A", "SP1614N"]),
                key: "write_hit = ",
                values: &[
                    "{ after_read = 0.120, after_write = 0.120 }",
                    "{ after_read = 0.350, after_write = 0.350 }",
                ],
            },
        ],
        columns: &[
            column("read_mb_s", "bonnie++", "block input", Unit::Of(MIB)),
            column("read_cpu_pct", "bonnie++", "block input", Unit::Percent),
            column("write_mb_s", "bonnie++", "block output", Unit::Of(MIB)),
            column("write_cpu_pct", "bonnie++", "block output", Unit::Percent),
            column("seeks_s", "bonnie++", "seeks", Unit::Of(1.0)),
        ],
        rows: &[
            ("a", "single-a", HEALTHY),
            ("b", "single-b", HEALTHY),
            ("c", "single-c", HEALTHY),
            ("c2", "single-c2", HEALTHY),
            ("raid1 a+c", "md-raid1-a+c", HEALTHY),
            ("raid1 a+b", "md-raid1-a+b", HEALTHY),
            ("raid0 a+c", "md-raid0-a+c", HEALTHY),
            ("raid0 a+b", "md-raid0-a+b", HEALTHY),
            ("raid5 degraded a+c", "raid5", "degraded (b missing)"),
            ("raid0 c+c2", "one-disk-raid0", HEALTHY),
            ("raid5 a+b+c", "raid5", HEALTHY),
        ],
    },
    Source {
        csv: "home-2015",
        plan: "home-2015",
        published: Published::Given,
        kept: &["bare", "single", "hdparm -t"],
        trimmed: &[
            ("[\"lapstrake\", \"md\"]", "\"md\""),
            ("\"o2\", ", ""),
            ("[4, 3, 2]", "[4, 3]"),
        ],
        parameters: HOME,
        columns: &[column("hdparm_mb_s", "hdparm -t", "throughput", Unit::Of(MIB))],
        rows: &[
            ("seagate-250", "single-seagate", HEALTHY),
            ("hitachi-80", "single-hitachi", HEALTHY),
            ("raid0 4 disks", "bare-raid0-of4", HEALTHY),
            ("raid5 4 disks", "bare-raid5-of4", HEALTHY),
            ("raid10 n2 4 disks", "bare-raid10-of4-n2", HEALTHY),
            ("raid10 f2 4 disks", "bare-raid10-of4-f2", HEALTHY),
            ("raid10 n2 3 disks 4GB", "bare-raid10-a+b+c-n2", HEALTHY),
        ],
    },
    Source {
        csv: "home-2015",
        plan: "home-2015-iozone",
        published: Published::Given,
        kept: &["ext4-md", "ext4-md-raid10-of3", "iozone"],
        trimmed: &[("\"o2\", ", "")],
        parameters: HOME,
        columns: &[
            column("iozone_write_kb_s", "iozone", "write", Unit::Of(KIB)),
            column("iozone_rewrite_kb_s", "iozone", "rewrite", Unit::Of(KIB)),
            column("iozone_random_write_kb_s", "iozone", "random write", Unit::Of(KIB)),
        ],
        rows: &[
            ("raid0 4 disks", "ext4-md-raid0", HEALTHY),
            ("raid5 4 disks", "ext4-md-raid5", HEALTHY),
            ("raid10 n2 4 disks", "ext4-md-raid10-n2", HEALTHY),
            ("raid10 f2 4 disks", "ext4-md-raid10-f2", HEALTHY),
            ("raid10 n2 3 disks 4GB", "ext4-md-raid10-of3", HEALTHY),
        ],
    },
    Source {
        csv: "raid5-2011",
        plan: "raid5-tuning-2011",
        published: Published::Given,
        kept: &["before", "after", "write a file"],
        trimmed: &[("[\"lapstrake\", \"md\"]", "\"md\"")],
        parameters: &[Parameter {
            name: "where the files of 2011 lay",
            of: Place::Plan,
            key: "at = ",
            values: &["\"50%\"", "\"0%\"", "\"20%\"", "\"33%\""],
        }],
        columns: &[column("write_mb_s", "write a file", "write", Unit::Of(MIB))],
        rows: &[
            ("stripe_cache_size 256 internal bitmap small chunk", "before", HEALTHY),
            ("stripe_cache_size 8192 bitmap chunk 128 MiB", "after", HEALTHY),
        ],
    },
    Source {
        csv: "sas-2009",
        plan: "cached-controller-2009",
        published: Published::Given,
        kept: &[
            "md-pair1",
            "md-pair2",
            "md-pair3",
            "md-raid0-over-raid1",
            "controller",
            "controller-16k",
            "bonnie++ -b",
        ],
        trimmed: &[],
        parameters: &[Parameter {
            name: "runs of a 3ware 9690SA",
            of: Place::Plan,
            key: "run = ",
            values: &["\"256K\"", "\"1M\"", "\"2M\""],
        }],
        columns: &[
            column("put_block_kb_s", "bonnie++ -b", "block output", Unit::Of(KIB)),
            column("rewrite_kb_s", "bonnie++ -b", "rewrite", Unit::Of(KIB)),
            column("get_block_kb_s", "bonnie++ -b", "block input", Unit::Of(KIB)),
            column("seeks_s", "bonnie++ -b", "seeks", Unit::Of(1.0)),
        ],
        rows: &[
            ("3ware RAID10 stripe 64K", "controller", HEALTHY),
            ("md RAID0 over 3xRAID1 chunk 64K", "md-raid0-over-raid1", HEALTHY),
            ("3ware RAID10 stripe 16K", "controller-16k", HEALTHY),
        ],
    },
    case(
        "raptor-2003",
        Published::HeldOut,
        HDPARM,
        &[
            ("Deskstar", "single-ibm1", HEALTHY),
            ("Raptor", "single-wd1", HEALTHY),
            ("raid0 2 Deskstars", "ibm-raid0", HEALTHY),
            ("raid0 2 Raptors", "wd-raid0", HEALTHY),
        ],
    ),
    case(
        "barracuda-2003",
        Published::Beside,
        HDPARM,
        &[("sdb", "single", HEALTHY), ("raid0 2 disks", "raid0", HEALTHY)],
    ),
    case(
        "maxtor-2004",
        Published::Beside,
        HDPARM,
        &[("sda2", "single", HEALTHY), ("raid5 4 disks", "raid5", HEALTHY)],
    ),
    case(
        "ata-2005",
        Published::Beside,
        &[column("read_mb_s", "dd", "throughput", Unit::Of(1e6))],
        &[
            ("one disk", "single", HEALTHY),
            ("raid1 2 disks", "raid1", HEALTHY),
            ("raid0 2 disks", "raid0", HEALTHY),
        ],
    ),
    case(
        "sata-2009",
        Published::HeldOut,
        &[
            column("read_mb_s", "bonnie++", "block input", Unit::Of(MIB)),
            column("write_mb_s", "bonnie++", "block output", Unit::Of(MIB)),
            column("seeks_s", "bonnie++", "seeks", Unit::Of(1.0)),
        ],
        &[("one disk", "single", HEALTHY), ("raid0 3 disks", "raid0", HEALTHY)],
    ),
    case(
        "qnap-ssd-2023",
        Published::Beside,
        &[
            column("read_mb_s", "read", "throughput", Unit::Of(1e6)),
            column("write_mb_s", "write", "throughput", Unit::Of(1e6)),
        ],
        &[
            ("one disk", "single", HEALTHY),
            ("raid0 4 disks", "md-raid0", HEALTHY),
            ("raid10 4 disks", "md-raid10", HEALTHY),
            ("raid5 4 disks", "md-raid5", HEALTHY),
            ("raid6 4 disks", "md-raid6", HEALTHY),
        ],
    ),
];

const HDPARM: &[Column] = &[column("hdparm_mb_s", "hdparm -t", "throughput", Unit::Of(MIB))];

/// A case that is in `cases` with its rows, and predicted as its plan is.
const fn case(
    name: &'static str,
    published: Published,
    columns: &'static [Column],
    rows: &'static [(&'static str, &'static str, &'static str)],
) -> Source {
    Source {
        csv: name,
        plan: name,
        published,
        columns,
        kept: &[],
        trimmed: &[],
        parameters: &[],
        rows,
    }
}
