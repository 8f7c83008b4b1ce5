//! Sizes and offsets agree with mdadm and the kernel's md on all arrays of `vectors/sizes.txt`.
//!
//! `vectors/make.sh` made that file; `vectors/sizes.py` describes its form.

use lapstrake_geometry::Version;
use lapstrake_geometry::size::{self, Log, Sizing};
use lapstrake_geometry::*;

/// A line of the file: what was asked, and what was made unless it was refused.
struct Case {
    line: &'static str,
    version: Version,
    slots: u16,
    devices: Vec<Sectors>,
    options: Vec<&'static str>,
    made: Option<Made>,
}

struct Made {
    layout: u32,
    chunk: Sectors,
    component: Sectors,
    array: Sectors,
    members: Vec<&'static str>,
}

fn cases() -> Vec<Case> {
    let lines = include_str!("../vectors/sizes.txt").lines();
    lines.filter(|line| line.starts_with("version=")).map(read_case).collect()
}

fn read_case(line: &'static str) -> Case {
    let (asked, made) = line.split_once(" -> ").unwrap();
    let mut asked = asked.split(' ');
    let mut value = |key: &str| asked.next().unwrap().strip_prefix(key).unwrap();
    let version = match value("version=") {
        "0.90" => Version::V090,
        "1.0" => Version::V1_0,
        "1.1" => Version::V1_1,
        _ => Version::V1_2,
    };
    let slots = value("slots=").parse().unwrap();
    let devices = value("devices=").split(',').map(|size| Sectors(size.parse().unwrap())).collect();
    Case { line, version, slots, devices, options: asked.collect(), made: read_made(made) }
}

fn read_made(text: &'static str) -> Option<Made> {
    let mut words = text.split(' ');
    let mut number =
        |key: &str| words.next()?.strip_prefix(key)?.parse::<i64>().ok().map(|value| value as u64);
    Some(Made {
        layout: number("layout=")? as u32,
        chunk: Sectors(number("chunk=")?),
        component: Sectors(number("component=")?),
        array: Sectors(number("array=")?),
        members: words.collect(),
    })
}

impl Case {
    fn option(&self, name: &str) -> Option<&'static str> {
        let at = self.options.iter().position(|option| *option == name)?;
        Some(self.options[at + 1])
    }

    fn kib(&self, name: &str) -> Option<Sectors> {
        self.option(name).map(|value| Sectors::from_kib(value.parse().unwrap()))
    }

    fn sizing(&self) -> Sizing {
        let level: Level = self.option("-l").unwrap().parse().unwrap();
        let default_chunk = Sectors::from_kib(if level.is_striped() { 512 } else { 0 });
        Sizing {
            version: self.version,
            level,
            chunk: self.kib("-c").or(self.kib("--rounding")).unwrap_or(default_chunk),
            ppl: self.option("-k") == Some("ppl"),
            data_offset: self.kib("--data-offset"),
            size: self.kib("-z"),
        }
    }

    /// Data offset and component.
    fn size(&self) -> Result<(Sectors, Sectors), GeometryError> {
        let sizing = self.sizing();
        let data_offset = sizing.data_offset(self.devices[0])?;
        let available: Result<Vec<Sectors>, _> =
            self.devices.iter().map(|&device| sizing.available(device, data_offset)).collect();
        Ok((data_offset, sizing.component(available?)?))
    }
}

/// What lies beside the superblock, from the last field of a member.
fn log(member: &str, sync_size: Sectors) -> Log {
    let beside = member.rsplit(':').next().unwrap();
    if beside.starts_with("ppl") {
        return Log::Ppl;
    }
    let Some((_, chunk)) = beside.split_once('/') else { return Log::None };
    let bits = sync_size.bytes().div_ceil(chunk.parse().unwrap());
    Log::Bitmap(Sectors::from_bytes((256 + bits.div_ceil(8)).next_multiple_of(4096)))
}

#[test]
fn component_and_array_have_the_sizes_that_md_gives_them() {
    let mut compared = 0;
    for case in cases() {
        let Some(made) = &case.made else { continue };
        let sizing = case.sizing();
        assert_eq!(sizing.chunk, made.chunk, "{}", case.line);
        let (data_offset, component) = case.size().expect(case.line);
        let data_size = |&device| {
            // Members that differ have no component, and no bitmap that would depend on it.
            size::member(case.version, device, data_offset, Sectors::ZERO, Log::None)
                .map(|member| case.version.usable(sizing.level, member.data_size))
        };
        let config = Config {
            level: sizing.level,
            layout: Layout::from_md(sizing.level, made.layout).unwrap(),
            chunk: sizing.chunk,
            raid_disks: case.slots,
            component,
            member_sizes: case.devices.iter().map(data_size).collect::<Result<_, _>>().unwrap(),
        };
        let geometry = match Geometry::new(&config) {
            // md does run an array of no sectors.
            Err(GeometryError::NoRoom { .. }) if made.array.is_zero() => continue,
            geometry => geometry.expect(case.line),
        };
        assert_eq!(geometry.component(), made.component, "{}", case.line);
        assert_eq!(geometry.array_sectors(), made.array, "{}", case.line);
        compared += 1;
    }
    assert!(compared > 450, "only {compared} arrays were compared");
}

#[test]
fn everything_on_a_member_lies_where_mdadm_puts_it() {
    let mut compared = 0;
    for case in cases() {
        let Some(made) = &case.made else { continue };
        let (data_offset, component) = case.size().expect(case.line);
        let level = case.sizing().level;
        let layout = Layout::from_md(level, made.layout).unwrap();
        let sync_size = size::sync_size(level, layout, case.slots, component);
        for (&device, &found) in case.devices.iter().zip(&made.members) {
            if case.version == Version::V090 {
                continue;
            }
            let log = log(found, sync_size);
            let member = size::member(case.version, device, data_offset, component, log);
            let member = member.expect(case.line);
            let bad_blocks = member.bad_block_log.map_or("-".into(), |offset| offset.to_string());
            let told = format!(
                "{}:{}:{}:{bad_blocks}:",
                member.superblock.0, member.data_offset.0, member.data_size.0
            );
            assert_eq!(&found[..=found.rfind(':').unwrap()], told, "{}", case.line);
            if let Some(offset) = member.ppl {
                assert!(found.ends_with(&format!("ppl{offset}/{}", size::PPL_SPACE.0)));
            }
            compared += 1;
        }
    }
    assert!(compared > 500, "only {compared} members were compared");
}

#[test]
fn arrays_have_a_bitmap_if_asked_or_large() {
    for case in cases() {
        let Some(made) = &case.made else { continue };
        let (_, component) = case.size().expect(case.line);
        let sizing = case.sizing();
        let expected = match case.option("-b") {
            Some(bitmap) => bitmap == "internal",
            None => !sizing.ppl && size::is_large(sizing.level, component),
        };
        let sync_size = Sectors(1);
        let has = |member: &&str| matches!(log(member, sync_size), Log::Bitmap(_));
        assert_eq!(made.members.iter().all(has), expected, "{}", case.line);
    }
}

#[test]
fn what_mdadm_refuses_for_its_size_is_refused() {
    let mut refused = 0;
    for case in cases().iter().filter(|case| case.made.is_none()) {
        let for_other_reasons = match case.version {
            // Neither is known to 0.90.
            Version::V090 => case.option("-l") == Some("0") || case.option("-k").is_some(),
            // mdadm lets the data run into the superblock, and the kernel refuses that.
            Version::V1_0 if case.option("--data-offset").is_some() => true,
            _ => case.option("--bitmap-chunk").is_some(),
        };
        if for_other_reasons {
            continue;
        }
        assert!(case.size().is_err(), "{}", case.line);
        refused += 1;
    }
    assert!(refused > 20, "only {refused} refusals were compared");
}
