//! The model: `dm_disk` with a layout (`dm_layout_g1`) and a mechanism (`dm_mech_g1`).

use super::block::Value;
use super::{Fields, File, ImportError};
use crate::layout::sparing::Sparing;
use crate::layout::{LayoutTable, Order, ZoneTable};
use crate::mechanism::Latency;
use crate::seek::SeekTable;

/// What a model tells.
pub(super) struct Mechanics {
    pub layout: LayoutTable,
    pub latency: Latency,
    pub seek: SeekTable,
    pub rpm: f64,
    pub head_switch_ms: f64,
    pub write_settle_ms: f64,
}

pub(super) fn read(model: &Fields<'_>, seek: Option<&str>) -> Result<Mechanics, ImportError> {
    let missing =
        |field| ImportError::Missing { file: File::Model, block: "dm_disk".into(), field };
    let layout = model.block("Layout Model")?.ok_or(missing("Layout Model"))?;
    let mechanism = model.block("Mechanical Model")?.ok_or(missing("Mechanical Model"))?;
    let heads = model.whole("Number of data surfaces")?;
    let heads = u32::try_from(heads)
        .map_err(|_| model.wrong("Number of data surfaces", heads, "fewer than 2^32"))?;
    let cylinders = model.whole("Number of cylinders")?;
    let layout = match layout.block.kind.as_str() {
        "dm_layout_g1" => zones_g1(&layout, heads)?,
        other => {
            let what = format!("the layout model {other}");
            return Err(ImportError::NotModelled { file: File::Model, what });
        }
    };
    if mechanism.block.kind != "dm_mech_g1" {
        let what = format!("the mechanical model {}", mechanism.block.kind);
        return Err(ImportError::NotModelled { file: File::Model, what });
    }
    Ok(Mechanics {
        latency: latency(&mechanism)?,
        seek: seek_table(&mechanism, seek, cylinders as f64)?,
        rpm: mechanism.number("Rotation speed (in rpms)")?,
        head_switch_ms: mechanism.number("Head switch time")?,
        // No head settles sooner for writing than for reading; what is extracted may say so, since
        // it is a difference of two sums.
        write_settle_ms: mechanism.number("Add. write settling delay")?.max(0.0),
        layout,
    })
}

fn zones_g1(layout: &Fields<'_>, heads: u32) -> Result<LayoutTable, ImportError> {
    let order = match layout.whole("LBN-to-PBN mapping scheme")? {
        0 => Order::Normal,
        1 => Order::SerpentineByZone,
        2 => Order::SerpentineByDisk,
        other => return Err(layout.wrong("LBN-to-PBN mapping scheme", other, "from 0 to 2")),
    };
    let sparing = match layout.whole("Sparing scheme used")? {
        0 => Sparing::None,
        1 => Sparing::Tracks,
        2 => Sparing::PerCylinder,
        3 => Sparing::PerTrack,
        4 => Sparing::PerCylinderSlipToEnd,
        5 => Sparing::CylinderFront,
        6 => Sparing::CylinderFrontSlipToEnd,
        7 => Sparing::DiskEnd,
        8 => Sparing::PerRange { cylinders: layout.whole("Rangesize for sparing")? },
        9 => Sparing::PerZone,
        10 => Sparing::PerZoneSlipToEnd,
        other => return Err(layout.wrong("Sparing scheme used", other, "from 0 to 10")),
    };
    let unit = skew_unit(layout, SkewUnit::Sectors)?;
    let Value::List(values) = layout.get("Zones")? else {
        return Err(layout.wrong("Zones", "no list", "a list of zones"));
    };
    let zone = |value: &Value| match value {
        Value::Block(block) if block.kind == "dm_layout_g1_zone" => {
            zone_g1(&Fields::new(block, File::Model), unit)
        }
        other => Err(layout.wrong("Zones", other, "a list of dm_layout_g1_zone")),
    };
    let zones = values.iter().map(zone).collect::<Result<_, _>>()?;
    Ok(LayoutTable { heads, order, sparing, zones })
}

#[derive(Clone, Copy)]
enum SkewUnit {
    Sectors,
    Revolutions,
}

fn skew_unit(fields: &Fields<'_>, default: SkewUnit) -> Result<SkewUnit, ImportError> {
    if !fields.block.values.contains_key("Skew units") {
        return Ok(default);
    }
    match fields.word("Skew units")? {
        "sectors" => Ok(SkewUnit::Sectors),
        "revolutions" => Ok(SkewUnit::Revolutions),
        other => Err(fields.wrong("Skew units", other, "sectors or revolutions")),
    }
}

fn zone_g1(zone: &Fields<'_>, unit: SkewUnit) -> Result<ZoneTable, ImportError> {
    let small = |field| {
        let number = zone.whole(field)?;
        u32::try_from(number).map_err(|_| zone.wrong(field, number, "below 2^32"))
    };
    let sectors_per_track = small("Blocks per track")?;
    let unit = skew_unit(zone, unit)?;
    // In sectors; fractions of one are real where the unit is a revolution.
    let skew = |field| {
        let number = zone.number_or(field, 0.0)?;
        Ok::<_, ImportError>(match unit {
            SkewUnit::Sectors => number,
            SkewUnit::Revolutions => number * f64::from(sectors_per_track),
        })
    };
    let pairs = zone.wholes("defects")?;
    if pairs.len() % 2 == 1 {
        return Err(zone.wrong("defects", pairs.len(), "a list of pairs"));
    }
    Ok(ZoneTable {
        first_cylinder: small("First cylinder number")?,
        last_cylinder: small("Last cylinder number")?,
        sectors_per_track,
        offset: skew("Offset of first block")?,
        track_skew: skew("Skew for track switch")?,
        cylinder_skew: skew("Skew for cylinder switch")?,
        reserved: zone.whole_or("Empty space at zone front", 0)?,
        spares: zone.whole_or("Number of spares", 0)?,
        slips: zone.wholes("slips")?,
        remaps: pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect(),
    })
}

fn latency(mechanism: &Fields<'_>) -> Result<Latency, ImportError> {
    match mechanism.word("Access time type")? {
        "trackSwitchPlusRotation" => Ok(Latency::Position),
        "averageRotation" => Ok(Latency::HalfTurn),
        other => {
            let what = format!("the access time type {other}");
            Err(ImportError::NotModelled { file: File::Model, what })
        }
    }
}

/// The file that a mechanism's seek curve is in, if it is in one.
pub(super) fn seek_file(mechanism: &Fields<'_>) -> Option<String> {
    let is_extracted = mechanism.word("Seek type").ok() == Some("extracted");
    let name = mechanism.word("Full seek curve").ok()?;
    is_extracted.then(|| name.to_owned())
}

fn seek_table(
    mechanism: &Fields<'_>,
    seek: Option<&str>,
    cylinders: f64,
) -> Result<SeekTable, ImportError> {
    let single = || mechanism.number("Single cylinder seek time");
    let average = || mechanism.number("Average seek time");
    let full = || mechanism.number("Full strobe seek time");
    match mechanism.word("Seek type")? {
        "extracted" => {
            let name = seek_file(mechanism).unwrap_or_else(|| "(unnamed)".to_owned());
            points(seek.ok_or(ImportError::NoSeek { name })?)
        }
        "constant" => {
            let field = "Constant seek time";
            let has = mechanism.block.values.contains_key(field);
            Ok(SeekTable::Constant { ms: if has { mechanism.number(field)? } else { average()? } })
        }
        "linear" => {
            Ok(SeekTable::Linear { single_ms: single()?, average_ms: average()?, full_ms: full()? })
        }
        "curve" => Ok(SeekTable::ThreePoint {
            single_ms: single()?,
            average_ms: average()?,
            full_ms: full()?,
        }),
        kind @ ("hpl" | "hplplus10") => root_line(mechanism, kind == "hplplus10", cylinders),
        other => Err(ImportError::NotModelled {
            file: File::Model,
            what: format!("the seek type {other}"),
        }),
    }
}

/// Six values: where the line begins, constant and factor of the root, of the line, and the first
/// distance's own time or -1.
fn root_line(
    mechanism: &Fields<'_>,
    has_first_ten: bool,
    cylinders: f64,
) -> Result<SeekTable, ImportError> {
    let field = "HPL seek equation values";
    let values = mechanism.numbers(field)?;
    let &[from, root_ms, root_factor, line_ms, line_factor, single] = values.as_slice() else {
        return Err(mechanism.wrong(field, format!("{} numbers", values.len()), "six numbers"));
    };
    if !(0.0..=cylinders.max(1e9)).contains(&from) {
        return Err(mechanism.wrong(field, from, "a number of cylinders first"));
    }
    let first_ms = if has_first_ten {
        mechanism.numbers("First ten seek times")?
    } else if single >= 0.0 {
        vec![mechanism.number_or("Single cylinder seek time", single)?]
    } else {
        Vec::new()
    };
    let from = from as u32;
    Ok(SeekTable::RootLine { from, root_ms, root_factor, line_ms, line_factor, first_ms })
}

/// A curve's file: a line with the number of points, then a distance and a time each.
fn points(text: &str) -> Result<SeekTable, ImportError> {
    let (mut points, mut said) = (Vec::new(), 0);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.to_lowercase().starts_with("seek") {
            said = line.rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        let distance = words.next().and_then(|word| word.parse::<u32>().ok());
        let ms = words.next().and_then(|word| word.parse::<f64>().ok());
        match (distance, ms.filter(|ms| ms.is_finite() && *ms >= 0.0)) {
            (Some(distance), Some(ms)) => points.push((distance, ms)),
            _ => {
                return Err(ImportError::SeekLine { line: index + 1, text: line.to_owned() });
            }
        }
    }
    if points.len() < said {
        return Err(ImportError::SeekShort { said, found: points.len() });
    }
    points.sort_by_key(|(distance, _)| *distance);
    points.dedup_by_key(|(distance, _)| *distance);
    points.retain(|(distance, _)| *distance > 0);
    Ok(SeekTable::Points { points: plausible(&points) })
}

/// Leaves out what cannot be: a farther seek does not take much less time than nearer ones. (DIXtrac
/// searches for a time; where the search fails, it ends at its lower bound.)
fn plausible(points: &[(u32, f64)]) -> Vec<(u32, f64)> {
    // Points on either side whose median a point is held against, and how far below it may be.
    const REACH: usize = 3;
    const LEAST: f64 = 0.75;
    let median = |index: usize| {
        let from = index.saturating_sub(REACH);
        let mut times: Vec<f64> = points[from..(index + REACH + 1).min(points.len())]
            .iter()
            .filter(|point| point.0 != points[index].0)
            .map(|point| point.1)
            .collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    };
    let is_plausible = |index: &usize| *index < REACH || points[*index].1 >= LEAST * median(*index);
    (0..points.len()).filter(is_plausible).map(|index| points[index]).collect()
}
