//! What combinations are called.

use super::{Choice, size_text};
use crate::plan::raw::RawArray;
use crate::plan::{Filesystem, Leg};
use crate::record::SubjectKind;
use std::collections::BTreeSet;

/// Names: the entry's, or its level's, and what sets each combination apart.
pub(super) fn names(raw: &RawArray, choices: &[Choice]) -> Vec<String> {
    let given = raw.name.as_ref().map(|name| name.get_ref().clone());
    let lists: BTreeSet<Vec<&str>> = choices.iter().map(member_names).collect();
    // Short enough to be read in a table, if that tells them apart.
    let is_long = |names: &[&str]| {
        let alike = lists.iter().filter(|list| list.len() == names.len());
        names.len() > 3 && alike.count() == 1
    };
    let parts: Vec<Vec<(bool, String)>> = choices.iter().map(|c| parts(c, is_long)).collect();
    let columns = parts.first().map_or(0, Vec::len);
    // A setting that some have no use for does not set them apart; the system always does.
    let differs = |column: usize| {
        let texts = parts.iter().map(|part| &part[column].1);
        texts.filter(|text| column == 0 || !text.is_empty()).collect::<BTreeSet<_>>().len() > 1
    };
    let varies: Vec<bool> = (0..columns).map(differs).collect();
    let name = |part: &Vec<(bool, String)>| {
        let kept = part.iter().zip(&varies);
        // Without a name of its own, level and system are always told.
        let kept = kept.filter(|((always, text), varies)| {
            !text.is_empty() && (**varies || (*always && given.is_none()))
        });
        let words = given.iter().cloned().chain(kept.map(|((_, text), _)| text.clone()));
        words.collect::<Vec<_>>().join("-")
    };
    parts.iter().map(name).collect()
}

fn member_names(choice: &Choice) -> Vec<&str> {
    choice.members.iter().map(Leg::name).collect()
}

/// What a combination is, column by column; with true, what its name begins with. Of members whose names are too long
/// there is the count.
fn parts(choice: &Choice, is_long: impl Fn(&[&str]) -> bool) -> Vec<(bool, String)> {
    let shape = &choice.shape;
    let system = match choice.kind {
        SubjectKind::Lapstrake => "",
        SubjectKind::Null => "null",
        SubjectKind::Disk => "disk",
        SubjectKind::Md => "md",
        SubjectKind::Btrfs => "btrfs",
        SubjectKind::Zfs => "zfs",
        SubjectKind::Controller => "controller",
        SubjectKind::Existing => "existing",
    };
    let level = shape.level.map_or_else(String::new, |level| level.to_string());
    let members = member_names(choice);
    let members =
        if is_long(&members) { format!("of{}", members.len()) } else { members.join("+") };
    let size = |bytes: Option<u64>| bytes.map_or_else(String::new, size_text);
    let filesystem =
        shape.filesystem.map_or_else(String::new, |filesystem: Filesystem| filesystem.to_string());
    let over =
        if choice.kind == SubjectKind::Lapstrake { shape.over.to_string() } else { String::new() };
    vec![
        (true, system.to_owned()),
        (true, level),
        (false, members),
        (false, shape.layout.clone().unwrap_or_default()),
        (false, size(shape.chunk)),
        (false, shape.metadata.map_or_else(String::new, |version| format!("metadata-{version}"))),
        (false, shape.bitmap.as_ref().map_or_else(String::new, |word| format!("bitmap-{word}"))),
        (false, shape.bitmap_chunk.map_or_else(String::new, |b| format!("bits-{}", size_text(b)))),
        (false, shape.stripe_cache.map_or_else(String::new, |pages| format!("cache-{pages}"))),
        (false, shape.read_ahead.map_or_else(String::new, |b| format!("ra-{}", size_text(b)))),
        (false, over),
        (false, filesystem),
        (
            false,
            shape
                .filesystem
                .map_or("", |_| if shape.stride { "aligned" } else { "unaligned" })
                .to_owned(),
        ),
    ]
}

pub(super) fn label(choice: &Choice) -> String {
    let words =
        parts(choice, |_| false).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty());
    words.collect::<Vec<_>>().join(" ")
}
