//! What no disk can have is refused by name, value and range; what real ones have is not.

use crate::profile::{Profile, builtin};

/// The error of a built-in profile of which one text is replaced by another.
fn told(name: &str, old: &str, new: &str) -> String {
    let text = builtin::text(name).unwrap();
    assert!(text.contains(old), "{name} has no {old}");
    let profile = Profile::from_toml(&text.replacen(old, new, 1));
    profile.map_or_else(|error| error.to_string(), |_| "taken".to_owned())
}

#[test]
fn no_number_of_a_hard_disk_is_taken_that_it_cannot_have() {
    let cases = [
        ("full_ms = 20.00", "full_ms = -20", "seek.full_ms is -20; it must be from 0.7 to 10,000"),
        ("full_ms = 20.00", "full_ms = nan", "seek.full_ms is NaN; it must be from 0.7 to 10,000"),
        ("full_ms = 20.00", "full_ms = 1e300", "seek.full_ms is 1e300; it must be from 0.7"),
        (
            "average_ms = 10.00",
            "average_ms = 0.1",
            "seek.average_ms is 0.1; it must be from 0.7 to 20",
        ),
        (
            "average_ms = 10.00",
            "average_ms = 21.0",
            "seek.average_ms is 21; it must be from 0.7 to 20",
        ),
        ("average_ms = 10.00", "average_ms = nan", "seek.average_ms is NaN"),
        ("average_ms = 10.00", "average_ms = 0.8", "seek: some seeks would take less than no time"),
        (
            "single_ms = 0.70",
            "single_ms = -0.7",
            "seek.single_ms is -0.7; it must be from 0 to 10,000",
        ),
        ("depth = 32", "depth = 0", "queue.depth is 0; it must be from 1 to 65,536"),
        ("depth = 32", "depth = 4000000000", "queue.depth is 4,000,000,000"),
        ("ageing = 0.02", "ageing = -1", "queue.order.ageing is -1; it must be from 0 to 1,000"),
        ("ageing = 0.02", "ageing = nan", "queue.order.ageing is NaN"),
        (
            "\"sptf\", ageing = 0.02",
            "\"v-scan\", turn = 1.5",
            "queue.order.turn is 1.5; it must be from 0 to 1",
        ),
        ("segments = 64", "segments = 0", "buffer.segments is 0; it must be from 1 to 65,536"),
        ("segments = 64", "segments = 4000000000", "buffer.segments is 4,000,000,000"),
        (
            "segment_blocks = 4096",
            "segment_blocks = 0",
            "buffer.segment_blocks is 0; it must be from 1 to",
        ),
        (
            "segment_blocks = 4096",
            "segment_blocks = 4000000000",
            "buffer.segment_blocks is 4,000,000,000",
        ),
        (
            "write_extents = 512",
            "write_extents = 0",
            "buffer.write_extents is 0; it must be from 1",
        ),
        ("write_extents = 512", "write_extents = 99999999", "buffer.write_extents is 99,999,999"),
        (
            "write_blocks = 131072",
            "write_blocks = 0",
            "buffer.write_blocks is 0; it must be from 1",
        ),
        (
            "read_ahead_max = 0",
            "read_ahead_max = 99999999999",
            "caching.read_ahead_max is 99,999,999,999",
        ),
        (
            "read_ahead_max = 0",
            "read_ahead_min = 99999999999",
            "caching.read_ahead_min is 99,999,999,999",
        ),
        (
            "read_hit = { after_read = 0.040",
            "read_hit = { after_read = -0.04",
            "overheads.read_hit.after_read is -0.04; it must be from 0 to 10,000",
        ),
        (
            "read_miss = { after_read = 0.150",
            "read_miss = { after_read = inf",
            "overheads.read_miss.after_read is inf",
        ),
        (
            "write_miss = { after_read = 0.150, after_write = 0.150",
            "write_miss = { after_read = 0.150, after_write = nan",
            "overheads.write_miss.after_write is NaN",
        ),
        (
            "[hard-disk.overheads.value]",
            "[hard-disk.overheads.value]\nreselect = nan",
            "overheads.reselect is NaN",
        ),
        (
            "inner_mb_s = 85.0",
            "inner_mb_s = 181.0",
            "layout.inner_mb_s is 181; it must be from 0.001 to 180",
        ),
        ("outer_mb_s = 180.0", "outer_mb_s = inf", "layout.outer_mb_s is inf"),
        ("blocks = 7814037168", "blocks = 9000000000000000000", "layout.blocks is 9e18"),
        (
            "blocks = 7814037168",
            "blocks = 1000000000000",
            "layout.blocks is 1,000,000,000,000; it must be on 8,388,608 cylinders at most",
        ),
        ("heads = 6", "heads = 0", "layout.heads is 0; it must be from 1 to 64"),
        ("zones = 24", "zones = 0", "layout.zones is 0; it must be from 1 to 1,000"),
        ("value = 5400.0", "value = nan", "rotation is NaN; it must be from 1 to 1,000,000"),
        (
            "value = 5400.0",
            "interval = [5000.0, 5300.0], value = 5400.0",
            "rotation.interval is 5,300; it must be 5,400 at least",
        ),
        (
            "value = 600.0",
            "value = 1e-300",
            "interface is 1e-300; it must be from 0.001 to 1,000,000",
        ),
        ("year = 2020", "year = 0", "year is 0; it must be from 1,956"),
    ];
    for (old, new, part) in cases {
        let told = told("hdd-4tb", old, new);
        assert!(told.contains(part), "{new}: {told}");
    }
    let shingled = told("hdd-8tb-shingled", "band_blocks = 524288", "band_blocks = 0");
    assert!(shingled.contains("shingled.band_blocks is 0"), "{shingled}");
}

#[test]
fn no_number_of_a_solid_disk_is_taken_that_it_cannot_have() {
    let cases = [
        (
            "queue = { value = 1024",
            "queue = { value = 0",
            "queue is 0; it must be from 1 to 65,536",
        ),
        ("units = { value = 128", "units = { value = 4000000000", "units is 4,000,000,000"),
        ("page = { value = 8", "page = { value = 0", "page is 0; it must be from 1 to 1,048,576"),
        (
            "read = { value = 44.0",
            "read = { value = inf",
            "read is inf; it must be from 0 to 10,000,000",
        ),
        ("flush = { value = 800.0", "flush = { value = -1.0", "flush is -1"),
        (
            "power_backed = { value = 0",
            "power_backed = { value = 2",
            "power_backed is 2; it must be from 0 to 1",
        ),
        (
            "slow_rate = { value = 2000.0",
            "slow_rate = { value = 0.0",
            "slow_rate is 0; it must be from 0.001",
        ),
        (
            "capacity = { value = 1953525168",
            "capacity = { value = 0",
            "capacity is 0; it must be from 1",
        ),
        ("buffer = { value = 32.0", "buffer = { value = nan", "buffer is NaN"),
        (
            "amplification = { value = 4.0",
            "amplification = { value = 0.5",
            "amplification is 0.5; it must be from 1 to 1,000",
        ),
    ];
    for (old, new, part) in cases {
        let told = told("ssd-nvme-1tb", old, new);
        assert!(told.contains(part), "{new}: {told}");
    }
}

#[test]
fn what_lies_on_a_bound_can_be_built_and_runs() {
    let cases = [
        ("segments = 64", "segments = 65536"),
        ("segment_blocks = 4096", "segment_blocks = 1048576"),
        ("read_ahead_max = 0", "read_ahead_max = 1048576"),
        ("full_ms = 20.00", "full_ms = 30.0"),
        ("write_cache = \"lazy\"", "write_cache = \"off\""),
        ("inner_mb_s = 85.0", "inner_mb_s = 180.0"),
    ];
    for (old, new) in cases {
        let text = builtin::text("hdd-4tb").unwrap().replacen(old, new, 1);
        let mut profile = Profile::from_toml(&text).unwrap_or_else(|e| panic!("{new}: {e}"));
        // Draws around a bound stay within it.
        for seed in 0..20 {
            profile.drawn(seed).build().unwrap_or_else(|error| panic!("{new} {seed}: {error}"));
        }
        profile.reliability = None;
        let entry = crate::trace::parse("R x 1000000 8 1 0\nR x 1000008 8 1 0\n").unwrap();
        crate::replay::service_times(&profile.build().unwrap(), &entry).unwrap();
    }
}

#[test]
fn a_missing_field_is_located_in_its_own_table() {
    let missing = told("hdd-4tb", "segments = 64\n", "");
    assert!(missing.contains("segments") && missing.contains("buffer"), "{missing}");
    assert!(!missing.contains("line 1,"), "{missing}");
    let wrong = told("hdd-4tb", "depth = 32", "depth = \"many\"");
    assert!(wrong.contains("depth = \"many\"") || wrong.contains("queue"), "{wrong}");
    assert!(!wrong.contains("line 1,"), "{wrong}");
    let neither = told("hdd-4tb", "hard-disk", "hard-disc");
    assert!(neither.contains("hard-disc"), "{neither}");
}
