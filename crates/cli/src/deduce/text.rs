//! What was found out, in words and as JSON, and the commands that try it.

use crate::text;
use lapstrake_deduce::{Agreement, Arrangement, Candidate, LikelyChunk, Report, Shape, Weights};
use lapstrake_device::{MemberSpec, quoted_path};
use lapstrake_geometry::{Layout, Level, Sectors, Slot};
use lapstrake_host::scan::Look;
use lapstrake_metadata::detect::Finding;
use lapstrake_metadata::{Role, Superblock};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What is told, of which devices.
pub struct Summary<'a> {
    pub devices: &'a [MemberSpec],
    /// Images and the maps of what they lack.
    pub maps: &'a [(PathBuf, PathBuf)],
    /// Of each device, if it can be looked at.
    pub looks: &'a [Option<Look>],
    pub report: &'a Report,
}

fn shape(shape: &Shape) -> String {
    let mut words = shape.level.to_string();
    if !matches!(shape.layout, Layout::None | Layout::Raid0(_)) {
        words += &format!(", layout {}", shape.layout.name());
    }
    if !shape.chunk.is_zero() {
        words += &format!(", chunk {}K", shape.chunk.0 / 2);
    }
    words + &format!(", {} members", shape.slots)
}

impl Summary<'_> {
    /// As [`commands`], with the maps of the images that are served.
    fn commands(&self, found: &Arrangement) -> Option<[String; 2]> {
        let [create, mut serve] = commands(self.devices, self.looks, found)?;
        let is_used = |image: &PathBuf| {
            found.order.iter().flatten().any(|device| self.devices[*device].path == *image)
        };
        for (image, map) in self.maps.iter().filter(|(image, _)| is_used(image)) {
            let [image, map] = [image, map].map(|path| quoted_path(path.as_os_str()));
            serve += &format!(" --ddrescue-map {image}={map}");
        }
        Some([create, serve])
    }

    pub fn text(&self, most: usize) -> String {
        let mut out = self.seen();
        out += &self.superblocks();
        let candidates = &self.report.candidates;
        // What is out of the question beside the first would only confuse.
        let worth = candidates.iter().filter(|candidate| candidate.probability >= 0.001).count();
        let most = most.min(worth).max(1);
        for (index, candidate) in candidates.iter().take(most).enumerate() {
            out += &self.candidate(index, candidate);
        }
        if worth > most {
            let rest: f64 = candidates.iter().skip(most).map(|c| c.probability).sum();
            let (others, percent) = (candidates.len() - most, 100.0 * rest);
            out += &format!("\nand {others} more, {percent:.1} % together (--candidates N)\n");
        }
        out += &self.advice();
        out
    }

    fn seen(&self) -> String {
        let report = self.report;
        let mib = report.bytes_read >> 20;
        let mut out =
            format!("read {mib} MiB of {} devices; nothing was written\n", self.devices.len());
        for (volume, structures) in report.volumes.iter().take(6) {
            let (kind, id) = (volume.kind, text::uuid(volume.id));
            let size = text::human(volume.bytes);
            out += &format!(
                "seen: {kind} {id}{size}, {structures} structures that tell their place\n"
            );
        }
        out += &agreement(report.agreement, self.devices.len());
        out += &report.likely_chunk.map(changes).unwrap_or_default();
        for unread in report.unreadable.iter().take(8) {
            let (device, range) = (&self.devices[unread.device], &unread.range);
            let bytes = range.end - range.start;
            out += &format!(
                "{device}: a read of {bytes} bytes at byte {} failed: {}; what lies there counts for nothing; image the \
                 disk with ddrescue before anything else\n",
                range.start, unread.reason
            );
        }
        out
    }

    fn superblock(&self, device: usize) -> Option<&Superblock> {
        self.looks[device].as_ref()?.superblock()
    }

    /// What is left of superblocks: all that lie in a place of md's, of which one at most is the device's own.
    fn superblocks(&self) -> String {
        let mut out = String::new();
        for (spec, look) in self.devices.iter().zip(self.looks) {
            let own = look.as_ref().and_then(Look::superblock);
            for finding in look.iter().flat_map(|look| &look.findings().all) {
                let Finding::Md { version, sector, superblock } = finding else { continue };
                let said = match superblock {
                    Ok(sb) if own == Some(sb) => format!("a superblock {}", says(sb)),
                    Ok(sb) => format!("beside it, a superblock {}", says(sb)),
                    Err(error) => {
                        format!("remains of a superblock {version} at sector {}: {error}", sector.0)
                    }
                };
                out += &format!("{spec}: {said}\n");
            }
        }
        out
    }

    /// Superblocks that say the same as an arrangement, be they the device's own or left over.
    fn borne_out(&self, found: &Arrangement) -> usize {
        let slots = found.order.iter().enumerate();
        let devices =
            slots.filter_map(|(slot, device)| Some((slot, self.looks[(*device)?].as_ref()?)));
        let is_borne_out = |(slot, look): &(usize, &Look)| {
            look.findings().superblocks().any(|sb| differences(sb, found, *slot).is_empty())
        };
        devices.filter(is_borne_out).count()
    }

    /// In which ways superblocks contradict an arrangement; None if there are no superblocks.
    fn contradictions(&self, candidate: &Candidate) -> Option<Vec<&'static str>> {
        let all = std::iter::once(&candidate.arrangement).chain(&candidate.equal);
        all.filter_map(|found| self.differences(found)).min_by_key(Vec::len)
    }

    fn differences(&self, found: &Arrangement) -> Option<Vec<&'static str>> {
        let slots = found.order.iter().enumerate();
        let own = slots.filter_map(|(slot, device)| Some((slot, self.superblock((*device)?)?)));
        let each: Vec<_> = own.map(|(slot, sb)| differences(sb, found, slot)).collect();
        let is_any = !each.is_empty();
        let mut ways = each.concat();
        ways.sort_unstable();
        ways.dedup();
        is_any.then_some(ways)
    }

    fn candidate(&self, index: usize, candidate: &Candidate) -> String {
        let found = &candidate.arrangement;
        let percent = 100.0 * candidate.probability;
        let sure = if candidate.is_certain { ", sure" } else { ", not sure" };
        let mut out = format!(
            "\n{}. {}, data from {}K on: {percent:.1} %{sure}\n",
            index + 1,
            shape(&found.shape),
            found.data_offset / 1024,
        );
        for (slot, device) in found.order.iter().enumerate() {
            let name = device.map_or("missing".into(), |device| self.devices[device].to_string());
            out += &format!("   slot {slot}: {name}\n");
        }
        out += &format!(
            "   {} of {} structures of {} lie where they have to\n",
            candidate.placed, candidate.structures, candidate.volume.kind
        );
        let relations = candidate.relations;
        let tried = relations.held + relations.failed;
        if tried > 0 {
            let held = relations.held;
            out += &format!("   {held} of {tried} tries of parity or copies hold\n");
        }
        out += &weights(candidate.weights);
        let (borne_out, given) = (self.borne_out(found), found.order.iter().flatten().count());
        if borne_out > 0 {
            out += &format!("   superblocks of {borne_out} of {given} members say the same\n");
        }
        if !candidate.equal.is_empty() {
            out += match relations.failed {
                0 => {
                    "   the same bytes in other words (which of them it was, nothing tells, and nothing depends on it):\n"
                }
                _ => "   the same bytes in other words, but where parity or copies do not fit:\n",
            };
        }
        for equal in candidate.equal.iter().take(3) {
            let names = |device: &Option<usize>| {
                device.map_or("missing".into(), |device| self.devices[device].to_string())
            };
            let order: Vec<String> = equal.order.iter().map(names).collect();
            out += &format!("     {}: {}\n", shape(&equal.shape), order.join(" "));
        }
        match self.commands(&candidate.arrangement) {
            Some([create, serve]) => {
                out += &format!(
                    "   to look at it, with nothing written to the devices:\n     {create}\n     {serve}\n"
                );
            }
            None => {
                out += "   no superblock can describe it with these sizes: give windows (DEVICE@0+SIZE) that end where \
                        the members' data do\n";
            }
        }
        out
    }

    /// What follows where no superblock contradicts the arrangement: `scan` serves it if each member has one.
    fn confirmed(&self, first: &Candidate) -> &'static str {
        let given = first.arrangement.order.iter().flatten();
        let has_all = given.clone().count() == self.devices.len()
            && given.clone().all(|device| self.superblock(*device).is_some());
        match (first.is_certain, has_all) {
            (true, true) => {
                "\nthe superblocks say the same as the contents: lapstrake scan tells how to serve the array as it is\n"
            }
            (true, false) => {
                "\nthe superblocks that are left say the same as the contents; the members without one need the commands \
                 above\n"
            }
            (false, _) => "",
        }
    }

    fn advice(&self) -> String {
        let Some(first) = self.report.candidates.first() else {
            return "nothing was found that tells how these devices were laid out: a whole disk may have to be given as \
                    its partitions (disk.img#3), an encrypted array tells little, --sample reads more\n"
                .into();
        };
        let mut out = String::new();
        match self.contradictions(first) {
            Some(ways) if ways.is_empty() => {
                out += self.confirmed(first);
            }
            Some(ways) if first.is_certain => {
                out += &format!(
                    "\nThe superblocks are not those of these contents: they differ in {}. That is what mdadm --create \
                     leaves when it is run over an old array. Do not start the array by them, do not let it resync, and \
                     run no fsck on it: each of these writes over your data. Image the disks, then use the commands \
                     above, which leave the devices as they are.\n",
                    ways.join(", ")
                );
            }
            _ => {}
        }
        let relations = first.relations;
        if relations.failed > 0 && relations.held > relations.failed {
            out += &format!(
                "\n{:.1} % of the tries of parity or copies fail. Perhaps a member had dropped out before and is out of \
                 date: leave out one after the other (`missing` in its slot, an overlay file each) and look which has the \
                 newest files. Or there the array was never synced, was being written when it died, or has been written \
                 over since (by a resync in a wrong order, say), and what lies there may be damaged.\n",
                100.0 - relations.percent()
            );
        }
        if !first.is_certain {
            out += "\nNone is sure. Try the first ones, each with an overlay file of its own, and look with `fsck -n` and \
                    at files larger than a stripe: only the right one has them whole.\n";
        }
        out
    }

    pub fn json(&self) -> Value {
        let report = self.report;
        let device = |device: &Option<usize>| device.map(|device| self.devices[device].exact());
        let arrangement = |found: &Arrangement| {
            json!({
                "level": found.shape.level.name(),
                "layout": found.shape.layout.name(),
                "chunk_bytes": found.shape.chunk.bytes(),
                "raid_devices": found.shape.slots,
                "data_offset_bytes": found.data_offset,
                "members": found.order.iter().map(device).collect::<Vec<_>>(),
            })
        };
        let candidates = report.candidates.iter().map(|candidate| {
            let mut value = arrangement(&candidate.arrangement);
            value["probability"] = json!(candidate.probability);
            value["sure"] = json!(candidate.is_certain);
            value["volume"] = json!(candidate.volume.kind.to_string());
            value["volume_offset_bytes"] = json!(candidate.volume_start);
            value["structures"] = json!({
                "in_place": candidate.placed,
                "looked_at": candidate.structures,
            });
            value["relations"] = json!({
                "held": candidate.relations.held,
                "failed": candidate.relations.failed,
            });
            value["weights"] = json!({
                "usual": candidate.weights.usual,
                "structures": candidate.weights.structures,
                "relations": candidate.weights.relations,
                "changes": candidate.weights.changes,
            });
            value["equal"] = candidate.equal.iter().map(arrangement).collect();
            value["superblocks_differ_in"] = json!(self.contradictions(candidate));
            value["superblocks_that_agree"] = json!(self.borne_out(&candidate.arrangement));
            value["commands"] = json!(self.commands(&candidate.arrangement));
            value
        });
        let volumes = report.volumes.iter().map(|(volume, structures)| {
            json!({
                "kind": volume.kind.to_string(),
                "id": text::uuid(volume.id),
                "bytes": volume.bytes,
                "structures": structures,
            })
        });
        let unreadable = report.unreadable.iter().map(|unread| {
            json!({
                "device": self.devices[unread.device].exact(),
                "offset": unread.range.start,
                "bytes": unread.range.end - unread.range.start,
                "reason": unread.reason,
            })
        });
        json!({
            "bytes_read": report.bytes_read,
            "agreement": {
                "rows": report.agreement.rows,
                "equal": report.agreement.equal,
                "zero": report.agreement.zero,
                "zero_but_one": report.agreement.but_one,
            },
            "likely_chunk": report.likely_chunk.map(|chunk| json!({
                "bytes": chunk.bytes,
                "changes_at_borders_percent": chunk.at_borders,
                "changes_elsewhere_percent": chunk.elsewhere,
                "weight": chunk.weight,
            })),
            "volumes": volumes.collect::<Vec<_>>(),
            "unreadable": unreadable.collect::<Vec<_>>(),
            "candidates": candidates.collect::<Vec<_>>(),
        })
    }
}

/// What a superblock says, in words.
fn says(sb: &Superblock) -> String {
    let level = sb.level().map_or("unknown level".into(), |level| level.to_string());
    let slot = match sb.role() {
        Role::Active(slot) => format!("slot {}", slot.0),
        role => role.to_string(),
    };
    let (made, chunk) = (text::time(sb.ctime().0), sb.chunk().0 / 2);
    let (version, offset, slots) = (sb.version(), sb.data_offset().0 / 2, sb.raid_disks());
    format!(
        "{version} says {level} of {slots}, chunk {chunk}K, {slot}, data from {offset}K on, made {made}"
    )
}

/// In which ways a superblock contradicts an arrangement that has its device in a slot.
fn differences(sb: &Superblock, found: &Arrangement, slot: usize) -> Vec<&'static str> {
    let is_mirror = sb.level() == Some(Level::Raid1);
    let has_chunk = !(is_mirror || found.shape.chunk.is_zero());
    let is_raid0 = sb.level() == Some(Level::Raid0);
    let checks = [
        (sb.level() == Some(found.shape.level), "level"),
        (sb.raid_disks() == found.shape.slots, "number of members"),
        (!has_chunk || sb.chunk() == found.shape.chunk, "chunk"),
        (is_raid0 || sb.layout() == Some(found.shape.layout), "layout"),
        (sb.data_offset().bytes() == found.data_offset, "data offset"),
        (is_mirror || sb.role() == Role::Active(Slot(slot as u16)), "order"),
    ];
    checks.iter().filter(|(holds, _)| !holds).map(|(_, way)| *way).collect()
}

/// How much each kind of evidence counts.
fn weights(found: Weights) -> String {
    let Weights { usual, structures, relations, changes } = found;
    format!(
        "   weights (logarithms of odds): how usual it is {usual:+.1}, structures out of place or in \
         parity only {structures:+.1}, parity and copies {relations:+.1}, changes at borders of chunks {changes:+.1}\n"
    )
}

/// Where contents change.
fn changes(found: LikelyChunk) -> String {
    let LikelyChunk { bytes, at_borders, elsewhere, weight } = found;
    format!(
        "contents change at {at_borders:.0} % of the borders of {}K, at {elsewhere:.0} % of others: perhaps chunks of that \
         size (weight {weight:+.1}; no proof)\n",
        bytes / 1024
    )
}

/// What the devices have in common, as far as it tells a level.
fn agreement(found: Agreement, devices: usize) -> String {
    let Agreement { rows, equal, zero, but_one } = found;
    let is_most = |count: u32| rows >= 8 && u64::from(count) * 10 >= u64::from(rows) * 9;
    let (count, what) = match () {
        () if devices < 2 => return String::new(),
        () if is_most(equal) => (equal, "all devices hold the same: copies of each other"),
        () if is_most(zero) => (
            zero,
            "the exclusive or of all devices is zero: RAID4 or RAID5 with all of its members, or pairs of copies",
        ),
        () if is_most(zero + but_one) => (
            zero + but_one,
            "that of all devices but one is zero: RAID6 with all of its members, or RAID5 beside a spare",
        ),
        () => return String::new(),
    };
    format!("in {count} of {rows} rows {what}\n")
}

/// What makes superblocks for an arrangement in an overlay, and what serves it then; None if `create` has no words
/// for it.
fn commands(
    devices: &[MemberSpec],
    looks: &[Option<Look>],
    found: &Arrangement,
) -> Option<[String; 2]> {
    let shape = &found.shape;
    let mut words = vec![
        "lapstrake create rescued --rescue rescue.cow".to_owned(),
        format!("--level {}", shape.level.name()),
        format!("--raid-devices {}", shape.slots),
    ];
    if shape.level.is_striped() {
        words.push(format!("--chunk {}", shape.chunk.0 / 2));
    }
    let is_described = !matches!(shape.layout, Layout::None);
    let version = version(found, looks);
    if is_described && !(shape.level == Level::Raid0 && version == "0.90") {
        words.push(format!("--layout {}", shape.layout.name()));
    }
    words.push(format!("--metadata {version}"));
    if found.data_offset > 0 {
        words.push(format!("--data-offset {}K", found.data_offset / 1024));
        if !found.data_offset.is_multiple_of(1024) || found.data_offset < 4096 {
            return None;
        }
    }
    if let Level::Raid10 = shape.level {
        words.push(format!("--size {}", found.component().0 / 2));
    }
    let mut present = Vec::new();
    for (slot, device) in found.order.iter().enumerate() {
        let Some(device) = device else {
            words.push("missing".into());
            continue;
        };
        let spec = ending(found, slot, &devices[*device]);
        words.push(quoted_path(spec.argument()));
        present.push(quoted_path(spec.argument()));
    }
    let serve = "lapstrake serve --overlay rescue.cow --fuse rescued.raw";
    Some([words.join(" "), format!("{serve} {}", present.join(" "))])
}

/// A member of a linear array ends where the next begins: a window says so.
fn ending(found: &Arrangement, slot: usize, spec: &MemberSpec) -> MemberSpec {
    use lapstrake_geometry::Geometry;
    let (Geometry::Linear(_), true) = (&found.geometry, slot + 1 < found.order.len()) else {
        return spec.clone();
    };
    let mut sector = lapstrake_geometry::Sector(0);
    let mut size = Sectors::ZERO;
    while sector.0 < found.geometry.array_sectors().0 {
        let run = found.geometry.map(sector);
        if run.homes[0].slot.index() == slot {
            size += run.len;
        }
        sector += run.len;
    }
    let size = Some(found.data_offset + size.bytes());
    MemberSpec { size, ..spec.clone() }
}

/// The version that leaves the array most. With data at the beginning that is 1.0 on small devices; on others it keeps
/// more at the end than 0.90 does.
fn version(found: &Arrangement, devices: &[Option<Look>]) -> &'static str {
    const SMALL: Sectors = Sectors(8 << 21);
    /// From this size on 0.90 cannot say it.
    const LARGE: Sectors = Sectors(1 << 33);
    let sizes = || devices.iter().flatten().map(Look::size);
    let fits_090 = found.shape.slots <= 27 && sizes().all(|size| size < LARGE);
    match found.data_offset {
        0 if fits_090 && sizes().any(|size| size > SMALL) => "0.90",
        0 => "1.0",
        1..8192 => "1.1",
        _ => "1.2",
    }
}
