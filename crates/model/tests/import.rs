//! Promise: DiskSim's parameter files become a profile that means what they say, or are refused by name.
//!
//! The files are small ones that we made; DiskSim's own stay with their owners.

use lapstrake_model::diskspecs::{self, ImportError, Text};
use lapstrake_model::hard::{Order, ReadAhead, WriteCache};
use lapstrake_model::layout::Track;
use lapstrake_model::mechanism::Arrival;
use lapstrake_model::profile::{Kind, Profile};
use lapstrake_model::{DiskModel, HardDiskModel, Nanos};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const MODEL: &str = include_str!("data/small.model");
const SEEK: &str = include_str!("data/small.seek");
const SPECS: &str = include_str!("data/small.diskspecs");

fn import(model: &str, seek: Option<&str>, specs: &str) -> Result<Profile, ImportError> {
    diskspecs::import(&model.into(), seek, &specs.into())
}

fn small() -> Profile {
    import(MODEL, Some(SEEK), SPECS).unwrap()
}

fn hard(profile: &Profile) -> HardDiskModel {
    match profile.build().unwrap() {
        DiskModel::Hard(model) => (*model).clone(),
        DiskModel::Solid(_) => panic!("not a hard disk"),
    }
}

#[test]
fn the_layout_is_as_described() {
    let model = hard(&small());
    let layout = &model.mechanism.layout;
    // Three ranges of 10 cylinders of 100 sectors less 5 spares, less what is reserved; then two ranges
    // of 80 less 5, and 9 cylinders that make no range and have no spares.
    let outer = 3 * (1000 - 5) - 100;
    let inner = 2 * (800 - 5) + 9 * 80;
    assert_eq!(layout.blocks(), outer + inner);
    // 100 reserved; sector 17, slipped, lies before them, so block 0 is sector 101.
    let first = layout.extent(0);
    assert_eq!((first.track, first.blocks), (Track { cylinder: 1, head: 0 }, 49));
    // Sector 700 is block 700 - 100 less the two slips before it; it lies at sector 995.
    let remapped = layout.extent(700 - 100 - 2);
    assert_eq!((remapped.track, remapped.blocks), (Track { cylinder: 9, head: 1 }, 1));
    // The second zone begins a quarter of a turn on, after a cylinder without data.
    let inside = layout.extent(outer);
    assert_eq!(inside.track, Track { cylinder: 31, head: 0 });
    assert_eq!(inside.angle.0, 1 << 62);
    assert_eq!(layout.cylinders(), 60);
}

#[test]
fn the_mechanism_is_as_described_where_that_can_be() {
    let mechanism = hard(&small()).mechanism;
    assert_eq!(mechanism.rotation.period(), Nanos(10_000_000));
    // The point at 20 cylinders is far below its neighbours and left out.
    let ms = [1, 5, 20, 59].map(|distance| mechanism.seek.time(distance).as_ms());
    assert_eq!(ms, [1.0, 2.0, 4.0, 9.0]);
    // A change of head settles as the shortest seek does.
    assert_eq!(mechanism.head_switch, Nanos(1_000_000));
    assert_eq!(mechanism.write_settle_ns, 300_000);
}

#[test]
fn the_firmware_is_as_described() {
    let model = hard(&small());
    assert_eq!(model.block_ps, 102_400_000, "5 MB/s, a SCSI bus's rate");
    let costs = &model.overheads;
    assert_eq!(costs.read_hit.after_write, Nanos(100_000), "the scale is 2");
    assert_eq!(costs.read_miss.after_write, costs.read_miss.after_read, "0 is unknown");
    assert_eq!(costs.write_miss.after_write, Nanos(800_000));
    assert_eq!((model.read_ahead, model.read_ahead_max), (ReadAhead::Segment, 48));
    assert!(!model.read_ahead_over_requested && model.cache.combines);
    assert_eq!((model.read_arrival, model.write_arrival), (Arrival::Any, Arrival::InOrder));
    assert_eq!((model.write_cache, model.queue_depth), (WriteCache::Immediate, 4));
    assert_eq!(model.order, Order::Fcfs);
    let cache = model.cache;
    assert_eq!((cache.segments, cache.segment_blocks, cache.dirty_extents_max), (3, 64, 2));
    assert!(cache.has_write_segment && !cache.hits_on_writes);
}

#[test]
fn data_wait_for_their_watermark_of_a_request_or_of_a_segment() {
    let with = |lines: &str| {
        let specs =
            SPECS.replace("Fast write level = 2,", &format!("Fast write level = 2, {lines}"));
        hard(&import(MODEL, Some(SEEK), &specs).unwrap()).read_watermark
    };
    assert_eq!(with(""), 0.0);
    assert_eq!(with("High (read) water mark = 0.75, Set watermark by reqsize = 1,"), 0.75);
    assert_eq!(with("High (read) water mark = 0.75,"), 1.0);
}

#[test]
fn a_change_of_head_and_settling_to_write_fit_into_the_skew() {
    // The skew is 1.9 ms, the shortest seek takes one.
    let head_switch = |settle: &str| {
        let model = MODEL.replace("Add. write settling delay = 0.3", settle);
        assert_ne!(model, MODEL);
        hard(&import(&model, Some(SEEK), SPECS).unwrap()).mechanism.head_switch
    };
    assert_eq!(head_switch("Add. write settling delay = 0.0"), Nanos(1_000_000));
    assert_eq!(head_switch("Add. write settling delay = 1.0"), Nanos(900_000));
}

#[test]
fn what_a_hit_costs_outlasts_a_pause_if_the_bus_is_left_open() {
    let with = |block_time: &str| {
        let specs = SPECS.replace("Bulk sector transfer time = 0.104", block_time);
        hard(&import(MODEL, Some(SEEK), &specs).unwrap()).overheads.read_hit_outlasts
    };
    assert!(with("Bulk sector transfer time = 0.0") && !with("Bulk sector transfer time = 0.1"));
}

#[test]
fn a_profile_survives_being_written() {
    let profile = small();
    let again = Profile::from_toml(&profile.to_toml().unwrap()).unwrap();
    assert_eq!(again, profile);
    assert!(matches!(again.kind, Kind::HardDisk(_)));
}

#[test]
fn every_seek_type_is_taken() {
    let with = |lines: &str| {
        let model = MODEL.replace("Seek type = extracted,", lines);
        let model = model.replace("Full seek curve = small.seek,", "");
        hard(&import(&model, None, SPECS).unwrap()).mechanism.seek
    };
    let ms = |lines: &str, distance| with(lines).time(distance).as_ms();
    assert_eq!(ms("Seek type = constant, Constant seek time = 4.5,", 7), 4.5);
    let three = "Single cylinder seek time = 1.0, Average seek time = 4.0,";
    assert_eq!(ms(&format!("Seek type = linear, {three}"), 59), 9.0);
    assert!((ms(&format!("Seek type = curve, {three}"), 59) - 9.0).abs() < 1e-6);
    let hpl = "HPL seek equation values = [ 30, 1.0, 0.5, 2.0, 0.1, -1.0 ],";
    assert_eq!(ms(&format!("Seek type = hpl, {hpl}"), 16), 3.0);
    assert_eq!(ms(&format!("Seek type = hpl, {hpl}"), 40), 6.0);
    let ten = "First ten seek times = [ 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0 ],";
    assert_eq!(ms(&format!("Seek type = hplplus10, {hpl} {ten}"), 3), 1.3);
}

#[test]
fn what_is_missing_or_not_modelled_is_named() {
    let told = |model: &str, specs: &str| import(model, Some(SEEK), specs).unwrap_err().to_string();
    let no_seek = import(MODEL, None, SPECS).unwrap_err();
    assert_eq!(no_seek, ImportError::NoSeek { name: "small.seek".into() });
    assert_eq!(told(MODEL, MODEL), "the disk specs: it has no block of kind disksim_disk");
    let layout = MODEL.replace("dm_layout_g1 {", "dm_layout_g9 {");
    assert_eq!(told(&layout, SPECS), "the model: the layout model dm_layout_g9 is not modelled");
    let sparing = MODEL.replace("Sparing scheme used = 8", "Sparing scheme used = 11");
    assert_eq!(
        told(&sparing, SPECS),
        "the model: \"Sparing scheme used\" is 11; it must be from 0 to 10"
    );
    let rpm = MODEL.replace("Rotation speed (in rpms) = 6000,", "");
    assert_eq!(told(&rpm, SPECS), "the model: dm_mech_g1 has no \"Rotation speed (in rpms)\"");
    let broken = MODEL.replace("Number of cylinders = 60,", "Number of cylinders = 60");
    assert!(told(&broken, SPECS).starts_with("the model: line 5: "), "{}", told(&broken, SPECS));
    let seek = import(MODEL, Some("Seek distances: 1\n1, x\n"), SPECS).unwrap_err();
    assert!(seek.to_string().contains("line 2"), "{seek}");
    let short = import(MODEL, Some(&SEEK[..SEEK.len() - 12]), SPECS).unwrap_err();
    assert_eq!(short, ImportError::SeekShort { said: 6, found: 5 });
    let hit =
        SPECS.replace("Write hit over. after read = 0.06", "Write hit over. after read = -0.06");
    assert_eq!(
        told(MODEL, &hit),
        "the disk specs: \"Write hit over. after read\" is -0.06; it must be 0 ms or more"
    );
}

/// A block of a text, braces and all, and the text with `source NAME` in its place.
fn moved(text: &str, block: &str, name: &str) -> (String, String) {
    let from = text.find(block).unwrap();
    let mut depth = 0;
    let end = text[from..].find(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == '}' && depth == 0
    });
    let end = from + end.unwrap() + 1;
    (text[from..end].to_owned(), format!("{}source {name}{}", &text[..from], &text[end..]))
}

#[test]
fn blocks_are_taken_from_the_files_that_are_named() {
    let (layout, model) = moved(MODEL, "dm_layout_g1 {", "parts/small.layout");
    let (zone, layout) = moved(&layout, "dm_layout_g1_zone {", "outer.zone");
    let (mechanism, model) = moved(&model, "dm_mech_g1 {", "small.mech");
    let text = Text::from(&*model);
    assert_eq!(text.named(), ["parts/small.layout", "small.mech"]);
    assert_eq!(Text::from(&*layout).named(), ["outer.zone"]);
    let named =
        |block: &str, name: &str| Text::from(&*block.replacen('{', &format!("{name} {{"), 1));
    let layout = named(&layout, "L").with("outer.zone", named(&zone, "Z"));
    let whole = text.with("parts/small.layout", layout).with("small.mech", Text::from(&*mechanism));
    assert_eq!(diskspecs::import(&whole, Some(SEEK), &SPECS.into()).unwrap(), small());
    assert_eq!(diskspecs::seek_file_name(&whole).as_deref(), Some("small.seek"));
    // A file of files.
    let specs = Text::from("source small.diskspecs\n").with("small.diskspecs", SPECS.into());
    assert_eq!(diskspecs::import(&MODEL.into(), Some(SEEK), &specs).unwrap(), small());
    let curve = MODEL.replace("curve = small.seek", "curve = source small.seek");
    assert_eq!(Text::from(&*curve).named(), Vec::<String>::new());
    let called = SPECS.replacen('{', "{\n   Model = source other.model,", 1);
    assert_eq!(Text::from(&*called).named(), Vec::<String>::new());
    assert_eq!(import(&curve, Some(SEEK), SPECS).unwrap(), small());
}

#[test]
fn a_named_file_that_is_not_there_or_wrong_is_told_by_its_name() {
    let (layout, model) = moved(MODEL, "dm_layout_g1 {", "small.layout");
    let error = import(&model, Some(SEEK), SPECS).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the model: \"Layout Model\" is in the file small.layout, which is not there or has no block"
        ),
        "{error}"
    );
    let broken = layout.replace("Sparing scheme used = 8,", "Sparing scheme used = 8");
    let text = Text::from(&*model)
        .with("small.layout", Text::from(&*format!("\n{}", broken.replacen('{', "L {", 1))));
    let error = diskspecs::import(&text, Some(SEEK), &SPECS.into()).unwrap_err().to_string();
    assert!(error.starts_with("the model: in small.layout, which it names: line 5: "), "{error}");
}

/// A text with a few of its bytes, numbers or lines changed.
fn spoilt(text: &str, state: &mut SplitMix64) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=state.next_u64() % 4 {
        let at = state.next_u64() as usize % bytes.len();
        match state.next_u64() % 4 {
            0 => bytes[at] = b"0123456789{}[],=.-# \n"[state.next_u64() as usize % 21],
            1 => drop(bytes.drain(at..(at + 1 + state.next_u64() as usize % 30).min(bytes.len()))),
            2 => drop(bytes.splice(at..at, *b"99999999999999999")),
            _ => drop(bytes.splice(at..at, *b"0")),
        }
        if bytes.is_empty() {
            bytes.push(b' ');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn spoilt_files_are_refused_or_make_a_disk_that_runs() {
    let (mut state, mut made) = (SplitMix64::seed_from_u64(1), 0);
    for _ in 0..4000 {
        let mut texts = [MODEL, SEEK, SPECS].map(str::to_owned);
        let which = state.next_u64() as usize % 3;
        texts[which] = spoilt(&texts[which], &mut state);
        let [model, seek, specs] = texts;
        let Ok(profile) = import(&model, Some(&seek), &specs) else { continue };
        let Ok(disk) = profile.build() else { continue };
        made += 1;
        let text: String = (0..20)
            .map(|_| {
                let lba = state.next_u64() % disk.blocks();
                let blocks = (1 + state.next_u64() % 64).min(disk.blocks() - lba);
                let way = if state.next_u64().is_multiple_of(2) { 'R' } else { 'W' };
                format!("{way} Miss {lba} {blocks} 1000 {}\n", state.next_u64() % 30_000)
            })
            .collect();
        let trace = lapstrake_model::trace::parse(&text).unwrap();
        lapstrake_model::replay::ladder(&disk, &trace).unwrap();
        let text = profile.to_toml();
        let again = text.ok().map(|text| Profile::from_toml(&text));
        assert!(again.is_none_or(|again| again.is_ok()));
    }
    assert!(made > 400, "{made} of 4000 were still disks");
}
