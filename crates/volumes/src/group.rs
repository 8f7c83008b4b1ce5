//! A volume group as its text describes it.
//!
//! Invariants: a volume's segments follow each other from byte 0 on, without gap; areas of a striped segment lie within their
//! physical volume's extents, are equally long, and their stripes are whole.

use crate::error::LabelError;
use crate::id::Id;
use crate::text::{Section, Value};
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Sectors of LVM2's text.
const SECTOR: u64 = 512;

/// A volume group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub id: Id,
    /// Counts the changes of its metadata.
    pub sequence: u64,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Its physical volumes.
    pub physical: Vec<Physical>,
    /// Its logical volumes, those that others are made of too.
    pub volumes: Vec<Volume>,
}

/// A physical volume as its group knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Physical {
    /// Its name in the text, such as pv0.
    pub key: String,
    /// Its UUID.
    pub uuid: Id,
    /// Where it was when the text was written.
    pub device: String,
    /// First byte of its first extent.
    pub start: u64,
    /// Its extents.
    pub extents: u64,
}

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub id: Id,
    /// Whether it is for users, and no part of another.
    pub is_visible: bool,
    /// Whether it may be written.
    pub is_writable: bool,
    /// Its snapshots, by name: a write to it would have to save what was there for them first.
    pub snapshots: Vec<String>,
    /// Whose snapshot it is: then its bytes are a store of changes.
    pub origin: Option<String>,
    /// Its parts.
    pub segments: Vec<Segment>,
}

/// A part of a logical volume, bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte in the volume.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// LVM2's name of its type; "striped" is linear too, with one area.
    pub kind: String,
    /// Bytes of a stripe; of a linear one its length.
    pub stripe_bytes: u64,
    /// Where it lies; none if it is more than ranges of physical volumes.
    pub areas: Vec<Area>,
}

/// One of a segment's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Index into the group's physical volumes.
    pub physical: usize,
    /// Its first byte on that device.
    pub offset: u64,
}

impl Volume {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.start + segment.len)
    }

    /// What it is, in LVM2's words: linear, striped, snapshot, or the first type that is neither.
    #[must_use]
    pub fn kind(&self) -> &str {
        if self.origin.is_some() {
            return "snapshot";
        }
        let other = self.segments.iter().find(|segment| segment.areas.is_empty());
        match other {
            Some(segment) => &segment.kind,
            None if self.segments.iter().any(|segment| segment.areas.len() > 1) => "striped",
            None => "linear",
        }
    }
}

impl Group {
    /// The volume of this name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The group that LVM2's text describes.
    ///
    /// # Errors
    /// [`LabelError::Group`].
    pub fn from_text(text: &Section) -> Result<Self, LabelError> {
        let mut sections = text.sections();
        let (Some((name, group)), None) = (sections.next(), sections.next()) else {
            return Err(LabelError::Group { group: "a group".into(), what: "its section" });
        };
        let missing = |what| LabelError::Group { group: name.to_owned(), what };
        let extent_bytes = group.number("extent_size").and_then(bytes).filter(|bytes| *bytes > 0);
        let mut this = Self {
            name: name.to_owned(),
            id: id(group).ok_or(missing("id"))?,
            sequence: group.number("seqno").ok_or(missing("seqno"))?,
            extent_bytes: extent_bytes.ok_or(missing("extent_size"))?,
            physical: Vec::new(),
            volumes: Vec::new(),
        };
        for (key, section) in group.section("physical_volumes").iter().flat_map(|it| it.sections())
        {
            let physical = this.physical(key, section).ok_or_else(|| LabelError::Group {
                group: format!("{name}, physical volume {key}"),
                what: "id, pe_start or pe_count",
            })?;
            this.physical.push(physical);
        }
        let volumes = group.section("logical_volumes");
        for (key, section) in volumes.iter().flat_map(|it| it.sections()) {
            let volume = this.logical(key, section).map_err(|what| LabelError::Group {
                group: format!("{name}, logical volume {key}"),
                what,
            })?;
            this.volumes.push(volume);
        }
        volumes.iter().flat_map(|it| it.sections()).for_each(|(_, section)| this.relate(section));
        Ok(this)
    }

    fn physical(&self, key: &str, section: &Section) -> Option<Physical> {
        let (start, extents) = (bytes(section.number("pe_start")?)?, section.number("pe_count")?);
        let end = extents.checked_mul(self.extent_bytes)?.checked_add(start)?;
        (end <= i64::MAX as u64).then_some(())?;
        let (key, device) = (key.to_owned(), section.text("device").unwrap_or_default().to_owned());
        Some(Physical { key, uuid: id(section)?, device, start, extents })
    }

    fn logical(&self, name: &str, section: &Section) -> Result<Volume, &'static str> {
        let mut segments: Vec<Segment> = Vec::new();
        for (_, part) in section.sections().filter(|(key, _)| key.starts_with("segment")) {
            segments.push(self.segment(part)?);
        }
        segments.sort_by_key(|segment| segment.start);
        let mut end = 0;
        for segment in &segments {
            if segment.start != end {
                return Err("start_extent");
            }
            end += segment.len;
        }
        Ok(Volume {
            name: name.to_owned(),
            id: id(section).ok_or("id")?,
            is_visible: section.has("status", "VISIBLE"),
            is_writable: section.has("status", "WRITE"),
            snapshots: Vec::new(),
            origin: None,
            segments,
        })
    }

    fn segment(&self, part: &Section) -> Result<Segment, &'static str> {
        let extents =
            part.number("extent_count").filter(|count| *count > 0).ok_or("extent_count")?;
        let start = part.number("start_extent").and_then(|it| it.checked_mul(self.extent_bytes));
        let (start, len) = (start.ok_or("start_extent")?, extents.checked_mul(self.extent_bytes));
        let len = len.ok_or("extent_count")?;
        let end = start.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        end.ok_or("extent_count")?;
        let kind = part.text("type").ok_or("type")?.to_owned();
        let mut segment = Segment { start, len, kind, stripe_bytes: len, areas: Vec::new() };
        if ["striped", "linear"].contains(&&*segment.kind) {
            self.place(&mut segment, part, extents)?;
        }
        Ok(segment)
    }

    /// Fills in the areas; they stay out where one is another logical volume (a move that is under way).
    fn place(
        &self,
        segment: &mut Segment,
        part: &Section,
        extents: u64,
    ) -> Result<(), &'static str> {
        let list = part.list("stripes");
        let count = list.len() as u64 / 2;
        let is_whole = list.len().is_multiple_of(2)
            && count > 0
            && part.number("stripe_count").is_none_or(|it| it == count)
            && extents.is_multiple_of(count);
        if !is_whole {
            return Err("stripes");
        }
        let each = extents / count;
        let mut areas = Vec::new();
        for pair in list.chunks_exact(2) {
            let [Value::Text(key), Value::Number(first)] = pair else { return Err("stripes") };
            let Some(nth) = self.physical.iter().position(|physical| physical.key == *key) else {
                segment.kind = "part of another volume".into();
                return Ok(());
            };
            let physical = &self.physical[nth];
            let first = u64::try_from(*first).map_err(|_| "stripes")?;
            if first.checked_add(each).is_none_or(|end| end > physical.extents) {
                return Err("stripes");
            }
            areas.push(Area { physical: nth, offset: physical.start + first * self.extent_bytes });
        }
        if count > 1 {
            let stripe = part.number("stripe_size").and_then(bytes).filter(|it| *it > 0);
            segment.stripe_bytes = stripe.ok_or("stripe_size")?;
            if !(each * self.extent_bytes).is_multiple_of(segment.stripe_bytes) {
                return Err("stripe_size");
            }
        }
        segment.areas = areas;
        Ok(())
    }

    /// Old snapshots are volumes of their own whose segment names both sides.
    fn relate(&mut self, section: &Section) {
        for (_, part) in
            section.sections().filter(|(_, part)| part.text("type") == Some("snapshot"))
        {
            let (Some(origin), Some(store)) = (part.text("origin"), part.text("cow_store")) else {
                continue;
            };
            for volume in &mut self.volumes {
                if volume.name == store {
                    volume.origin = Some(origin.to_owned());
                } else if volume.name == origin {
                    volume.snapshots.push(store.to_owned());
                }
            }
        }
    }
}

fn id(section: &Section) -> Option<Id> {
    Id::from_text(section.text("id")?)
}

fn bytes(sectors: u64) -> Option<u64> {
    sectors.checked_mul(SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn group(volumes: &str) -> Result<Group, LabelError> {
        let id = "CNEInB-aM25-cbMM-UOQ7-3ijk-fOm0-6e2k78";
        let volumes =
            volumes.replace("ID", &format!("id = \"{id}\" status = [\"WRITE\", \"VISIBLE\"]"));
        let text = format!(
            "vg {{ id = \"{id}\" seqno = 1 extent_size = 8192\nphysical_volumes {{ pv0 {{ id = \"{id}\" pe_start = 2048 \
             pe_count = 10 }} }} logical_volumes {{ {volumes} }} }}"
        );
        Group::from_text(&text::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn volumes_that_are_more_than_ranges_are_named() {
        let linear = "segment1 { start_extent = 0 extent_count = 2 type = \"striped\" stripe_count = 1 stripes = [\"pv0\", 0] }";
        let thin =
            "segment1 { start_extent = 0 extent_count = 2 type = \"thin\" thin_pool = \"pool\" }";
        let snapshot = "segment1 { start_extent = 0 extent_count = 2 type = \"snapshot\" chunk_size = 8 origin = \"a\" cow_store = \"s\" }";
        let group = group(&format!(
            "a {{ ID {linear} }} s {{ ID {linear} }} t {{ ID {thin} }} snapshot0 {{ ID {snapshot} }}"
        ));
        let group = group.unwrap();
        let kind = |name| group.volume(name).unwrap().kind();
        assert_eq!(
            ["a", "s", "t", "snapshot0"].map(kind),
            ["linear", "snapshot", "thin", "snapshot"]
        );
        assert_eq!(group.volume("a").unwrap().snapshots, ["s"]);
        assert_eq!(group.volume("a").unwrap().bytes(), 8 << 20);
    }

    #[test]
    fn what_lies_outside_or_leaves_gaps_is_refused() {
        let segment = |start, count, at| {
            format!(
                "a {{ ID segment1 {{ start_extent = {start} extent_count = {count} type = \"striped\" stripes = [\"pv0\", {at}] }} }}"
            )
        };
        assert!(group(&segment(0, 2, 8)).is_ok());
        for wrong in
            [segment(0, 3, 8), segment(1, 1, 0), segment(0, 0, 0), segment(0, 1, i64::MAX as u64)]
        {
            assert!(group(&wrong).is_err(), "{wrong}");
        }
        assert!(group(&segment(0, i64::MAX as u64, 0)).is_err());
    }
}
