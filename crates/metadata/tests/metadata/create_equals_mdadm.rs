//! A new array's metadata equals what mdadm 4.2 and 4.6 write, byte by byte.
//!
//! `vectors/create-4.2.jsonl` and `create-4.6.jsonl` hold, for each request, every byte other than zero that that mdadm
//! left near the start and the end of each member before any kernel started the array (see
//! `vectors/make.py`). The plan for the same request has to give the same bytes, with the
//! random UUIDs and the time taken from the vector. Requests that mdadm refuses, the plan
//! refuses; where it deliberately differs, the case is listed in [`differs`] with the reason.

use std::collections::BTreeMap;

use lapstrake_geometry::{Layout, Level, Raid0Layout, Sector, Sectors};
use lapstrake_metadata::create::{BitmapChoice, CreateRequest, NewMember, Policy, plan};
use lapstrake_metadata::{Superblock, Version, read_at, v1};
use serde_json::Value;

/// Bytes other than zero with their offsets, in order.
type Bytes = Vec<(u64, u8)>;

/// `first` are the runs of the first member, which others refer to by number.
fn bytes_of(runs: &Value, first: &Value) -> Bytes {
    let mut bytes = Bytes::new();
    for run in runs.as_array().unwrap() {
        let run = run.as_u64().map_or(run, |number| &first[number as usize]);
        let (at, text) = (run[0].as_u64().unwrap(), run[1].as_str().unwrap());
        let hex = |text: &str| u8::from_str_radix(text, 16).unwrap();
        let values: Vec<u8> = match text.split_once('*') {
            Some((byte, count)) => vec![hex(byte); count.parse().unwrap()],
            None => (0..text.len() / 2).map(|i| hex(&text[i * 2..i * 2 + 2])).collect(),
        };
        bytes.extend((at..).zip(values).filter(|(_, byte)| *byte != 0));
    }
    sorted(bytes)
}

fn sorted(mut bytes: Bytes) -> Bytes {
    bytes.sort_unstable();
    // The parts of a small member overlap.
    bytes.dedup();
    bytes
}

fn slice(bytes: &Bytes, at: u64, len: u64) -> Vec<u8> {
    let mut out = vec![0; len as usize];
    let from = bytes.partition_point(|(i, _)| *i < at);
    for (i, byte) in bytes[from..].iter().take_while(|(i, _)| *i < at + len) {
        out[(i - at) as usize] = *byte;
    }
    out
}

fn level(case: &Value) -> Level {
    let name = case["level"].as_str().map(str::to_owned);
    name.unwrap_or_else(|| case["level"].to_string()).parse().unwrap()
}

/// Every member; a number stands for so many missing ones.
fn members(case: &Value) -> Vec<&Value> {
    let mut members = vec![];
    for member in case["members"].as_array().unwrap() {
        match member.as_u64() {
            Some(count) => members.extend((0..count).map(|_| &Value::Null)),
            None => members.push(member),
        }
    }
    members
}

/// The request, or None if its text is one that a command line would not take.
fn request(mdadm: Mdadm, case: &Value) -> Option<CreateRequest> {
    let level = level(case);
    let sectors = |key: &str| case[key].as_u64().map(Sectors::from_kib);
    let member = |(i, m): (usize, &Value)| {
        let size = Sectors(m["sectors"].as_u64()?);
        // ubda, ubdb, ... have major 98 and 16 minors each; the vectors tell which they were.
        Some(NewMember { size, device: (0, i as u32), ..NewMember::default() })
    };
    let layout = case["layout"].as_str();
    let mut given: Vec<_> = members(case).into_iter().enumerate().map(member).collect();
    let journal = if case["journal"] == true { given.remove(0) } else { None };
    Some(CreateRequest {
        level,
        raid_disks: case["disks"].as_u64()? as u16,
        spares: case["spares"].as_u64().unwrap_or(0) as u16,
        members: given,
        journal,
        version: case["version"].as_str()?.parse().unwrap(),
        chunk: sectors("chunk_kib"),
        layout: match layout {
            Some(name) => Some(Layout::from_name(level, name).ok()?),
            None => None,
        },
        bitmap: match case["bitmap"].as_str() {
            // mdadm 4.6 asks, and with --run makes none.
            None if mdadm == Mdadm::V4_2 => BitmapChoice::IfLarge,
            None => BitmapChoice::None,
            Some("none") => BitmapChoice::None,
            Some("internal") => BitmapChoice::Internal,
            Some("external") => BitmapChoice::External,
            Some(other) => panic!("{other}"),
        },
        bitmap_chunk: case["bitmap_chunk_kib"].as_u64().map(|kib| kib as u32 * 1024),
        policy: case["policy"].as_str().map(|name| match name {
            "resync" => Policy::Resync,
            "bitmap" => Policy::Bitmap,
            "ppl" => Policy::Ppl,
            other => panic!("{other}"),
        }),
        write_behind: 0,
        size: sectors("size_kib"),
        data_offset: sectors("data_offset_kib"),
        logical_block_size: case["logical_block_size"].as_u64().map(|bytes| bytes as u32),
        set_uuid: case["uuid"].as_str().map(|text| {
            let hex = text.replace(':', "");
            core::array::from_fn(|i| u8::from_str_radix(&hex[i * 2..i * 2 + 2], 16).unwrap())
        }),
        name: case["name"].as_str().unwrap_or("0").into(),
        homehost: Some(case["homehost"].as_str().unwrap_or("(none)").into()),
        assume_clean: case["assume_clean"].as_bool().unwrap_or(false),
        force: case["force"].as_bool().unwrap_or(false),
        ctime: 0,
        md_minor: 0,
    })
}

/// The versions of mdadm whose vectors there are.
#[derive(Clone, Copy, PartialEq)]
enum Mdadm {
    V4_2,
    V4_6,
}

/// How the plan for a case deliberately differs from what mdadm does.
#[derive(Clone, Copy, PartialEq)]
enum Differs {
    /// mdadm makes the array, the plan refuses it.
    Refused,
    /// mdadm refuses what the plan makes.
    Made,
    /// mdadm leaves a raid0 without a layout, the plan records one; all else is equal.
    Layout,
    /// mdadm leaves members without superblocks, the plan makes the array.
    HalfWay,
    /// mdadm counts as room for data what lies before the data offset, too.
    Room,
}

/// Why the plan for a case is not to equal what mdadm does.
fn differs(mdadm: Mdadm, case: &Value, request: &CreateRequest) -> Option<(Differs, &'static str)> {
    use Differs::{HalfWay, Layout as OurLayout, Made, Refused, Room};
    let sizes: Vec<_> = request.members.iter().flatten().map(|m| m.size).collect();
    let is_uneven = sizes.iter().any(|size| *size != sizes[0]);
    let is_old = request.version == Version::V090;
    let is_raid0 = request.level == Level::Raid0;
    let has_layout = request.layout != Some(Layout::Raid0(Raid0Layout::Unset));
    let is_ppl = request.policy == Some(Policy::Ppl);
    let is_refused = case["refused"].is_string();
    let of_any = [
        (
            mdadm == Mdadm::V4_6 && is_ppl && request.version == Version::V1_0,
            (
                HalfWay,
                "mdadm 4.6 ends half-way where a partial parity log lies before its superblock",
            ),
        ),
        (
            request.journal.is_some() && case["bitmap"] == "internal",
            (Refused, "no kernel starts an array with both a journal and a bitmap"),
        ),
        (request.journal.is_some() && is_old, (Refused, "0.90 has no role for a journal")),
        (
            request.data_offset.is_some() && request.version == Version::V1_0,
            (Room, "mdadm does not take a given data offset of 1.0 off the room for data"),
        ),
        (
            is_ppl
                && request.data_offset == Some(Sectors(1024))
                && request.version != Version::V1_0,
            (Refused, "mdadm lets a partial parity log run into the data, which no kernel starts"),
        ),
        (
            request.level == Level::Raid5 && request.chunk == Some(Sectors(10)),
            (Refused, "no kernel runs a raid5 with a chunk that is no power of two"),
        ),
        (
            request.level == Level::Raid1 && sizes.first() == Some(&Sectors(128)),
            (Refused, "mdadm rounds so small a raid1 down to nothing"),
        ),
    ];
    let of_4_2 = [
        (is_raid0 && is_old, (Made, "mdadm 4.2 cannot make a raid0 with 0.90, other versions can")),
        (
            is_raid0 && !is_old && has_layout && !is_uneven,
            (OurLayout, "mdadm 4.2 records a raid0's layout only where members' sizes differ"),
        ),
    ];
    let of_4_6 = [
        (
            is_raid0 && is_old && is_refused,
            (Made, "mdadm 4.6 takes members of one zone for several if their sizes differ at all"),
        ),
        (
            case["bitmap"] == "external",
            (Made, "mdadm 4.6 makes no bitmap in a file, kernels still take one"),
        ),
        (
            request.policy == Some(Policy::Bitmap) && case["bitmap"] != "internal",
            (Refused, "mdadm 4.6 takes the policy bitmap for an array that has none"),
        ),
    ];
    let own = if mdadm == Mdadm::V4_2 { &of_4_2[..] } else { &of_4_6[..] };
    of_any.iter().chain(own).find(|(holds, _)| *holds).map(|(_, differs)| *differs)
}

/// Takes time and UUIDs from what mdadm wrote, so that only decisions are compared.
fn adopt(request: &mut CreateRequest, members: &[Superblock], seq: Option<[u8; 4]>) -> Vec<u8> {
    let mut random = vec![];
    request.ctime = members[0].ctime().0;
    if request.set_uuid.is_none() {
        let by_host = request.version == Version::V090 && request.homehost.is_some();
        random.extend(&members[0].set_uuid()[..if by_host { 8 } else { 16 }]);
    }
    for (index, uuid) in members.iter().filter_map(Superblock::device_uuid).enumerate() {
        random.extend(uuid);
        random.extend(seq.filter(|_| index == 0).into_iter().flatten());
    }
    random
}

/// Compares one case; Err tells a difference that is not meant.
fn check(mdadm: Mdadm, case: &Value) -> Result<&'static str, String> {
    let Some(request) = request(mdadm, case) else {
        return if case["refused"].is_string() { Ok("refused") } else { Err("no request".into()) };
    };
    let is_made = plan(&request, |bytes| bytes.fill(1)).is_ok();
    let is_refused = case["refused"].is_string();
    match differs(mdadm, case, &request) {
        _ if is_refused && !is_made => Ok("refused"),
        None => compare(case, request, |_| {}),
        Some((Differs::Refused, reason)) if !is_made && !is_refused => Ok(reason),
        Some((Differs::Made, reason)) if is_made && is_refused => Ok(reason),
        Some((Differs::HalfWay, reason)) if is_made && stored(case, &request).is_err() => {
            Ok(reason)
        }
        Some((Differs::Layout, reason)) if is_made && !is_refused => {
            compare(case, request, |sb| match sb {
                Superblock::V1(sb) => sb.feature_map &= !v1::feature::RAID0_LAYOUT,
                Superblock::V090(_) => {}
            })
            .map(|_| reason)
        }
        Some((Differs::Room, reason)) if is_made && !is_refused => {
            let plan = plan(&request, |bytes| bytes.fill(1)).expect("it is made");
            let ours = plan.members.iter().map(|member| &member.superblock);
            let theirs = stored(case, &request)?.1;
            let is_so = ours.zip(&theirs).all(|(ours, theirs)| {
                let data = (ours.data_offset(), ours.data_offset() + ours.data_size());
                data == (theirs.data_offset(), Sector(theirs.data_size().0))
            });
            if is_so { Ok(reason) } else { Err(format!("not so: {reason}")) }
        }
        Some((_, reason)) => {
            Err(format!("not so: {reason}; we refuse: {}, mdadm refuses: {is_refused}", !is_made))
        }
    }
}

/// What mdadm left on each member, and the superblock in it.
fn stored(case: &Value, request: &CreateRequest) -> Result<(Vec<Bytes>, Vec<Superblock>), String> {
    let present: Vec<&Value> =
        members(case).into_iter().filter(|member| !member.is_null()).collect();
    let stored: Vec<Bytes> =
        present.iter().map(|m| bytes_of(&m["runs"], &present[0]["runs"])).collect();
    let superblocks = present
        .iter()
        .zip(&stored)
        .map(|(m, bytes)| {
            let size = m["sectors"].as_u64().unwrap();
            let at = request.version.superblock(Sectors(size)).unwrap().0 * 512;
            read_at(request.version, Sectors(size), &slice(bytes, at, 4096))
        })
        .collect::<Result<_, _>>()
        .map_err(|error| format!("mdadm's superblock: {error}"))?;
    Ok((stored, superblocks))
}

/// Holds the plan's bytes, with the superblocks as `amend` leaves them, against mdadm's.
fn compare(
    case: &Value,
    mut request: CreateRequest,
    amend: impl Fn(&mut Superblock),
) -> Result<&'static str, String> {
    if let Some(refusal) = case["refused"].as_str() {
        return Err(format!("mdadm refuses: {refusal}"));
    }
    let (stored, superblocks) = stored(case, &request)?;
    // Of the journal, which comes first.
    let seq = request.journal.map(|_| {
        let at = superblocks[0].data_offset().0 * 512;
        slice(&stored[0], at + 16, 4).try_into().unwrap()
    });
    let mut random = adopt(&mut request, &superblocks, seq).into_iter();
    if let Superblock::V090(sb) = &superblocks[0] {
        // Which of the guest's disks was where.
        let own = superblocks.iter().map(|theirs| {
            let disk = sb.disks[theirs.dev_number() as usize];
            (disk.major, disk.minor)
        });
        for (member, device) in request.members.iter_mut().flatten().zip(own) {
            member.device = device;
        }
    }
    let mut plan = plan(&request, |bytes| bytes.fill_with(|| random.next().unwrap()))
        .map_err(|error| format!("refused: {error}"))?;
    for (index, member) in plan.members.iter_mut().enumerate() {
        amend(&mut member.superblock);
        if request.journal.is_some() && index == 0 {
            // mdadm gives the journal, and nobody else, an event at once, and would not assemble it so.
            member.superblock.set_events(1);
        }
        let at = member.superblock.super_sector();
        let write = member.writes.iter_mut().find(|write| write.sector == at).unwrap();
        write.bytes = member.superblock.encode();
    }
    for (member, (expected, superblock)) in plan.members.iter().zip(stored.iter().zip(&superblocks))
    {
        if member.superblock != *superblock {
            let mut ours = member.superblock.clone();
            if let (Superblock::V1(ours), Superblock::V1(theirs)) = (&mut ours, superblock) {
                ours.sb_csum = theirs.sb_csum;
            }
            if let (Superblock::V090(ours), Superblock::V090(theirs)) = (&mut ours, superblock) {
                ours.sb_csum = theirs.sb_csum;
            }
            if ours != *superblock {
                return Err(format!("ours {ours:?}\ntheirs {superblock:?}"));
            }
        }
        let mut bytes = Bytes::new();
        for write in &member.writes {
            let places = write.sector.bytes()..;
            bytes.extend(places.zip(write.bytes.iter().copied()).filter(|(_, byte)| *byte != 0));
        }
        let bytes = sorted(bytes);
        if bytes != *expected {
            let differ = bytes.iter().zip(expected).find(|(ours, theirs)| ours != theirs);
            return Err(format!("member {}: {differ:x?}", member.index));
        }
    }
    if plan.members.len() != stored.len() {
        return Err("another number of members".into());
    }
    let external = &case["external_bitmap"];
    match (&plan.bitmap_file, external.is_null()) {
        (None, true) => {}
        (Some(ours), false) => {
            let theirs = slice(
                &bytes_of(&external["runs"], &Value::Null),
                0,
                external["bytes"].as_u64().unwrap(),
            );
            if *ours != theirs {
                return Err(format!(
                    "bitmap file of {} bytes, mdadm's has {}",
                    ours.len(),
                    theirs.len()
                ));
            }
        }
        _ => return Err("one has a bitmap file, the other has none".into()),
    }
    Ok("equal")
}

#[test]
fn every_request_gives_mdadms_bytes() {
    equal(Mdadm::V4_2, include_str!("../vectors/create-4.2.jsonl"));
    equal(Mdadm::V4_6, include_str!("../vectors/create-4.6.jsonl"));
}

fn equal(mdadm: Mdadm, text: &str) {
    let mut outcomes = BTreeMap::<&str, usize>::new();
    let mut failures = vec![];
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        match check(mdadm, &case) {
            Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
            Err(why) => {
                let mut shown = case.clone();
                for member in shown["members"].as_array_mut().unwrap() {
                    *member = member.get("sectors").unwrap_or(&Value::Null).clone();
                }
                failures.push(format!("{shown}: {why}"));
            }
        }
    }
    println!("{outcomes:#?}");
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        text.lines().count(),
        failures.join("\n")
    );
}
