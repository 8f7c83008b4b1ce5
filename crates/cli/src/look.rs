//! `lapstrake look`.

use crate::exit::{Exit, Outcome};
use crate::serve::Which;
use crate::stack::Stack;
use crate::{complete, options, text};
use lapstrake_device::MemberSpec;
use lapstrake_lab::width;
use lapstrake_volumes::{Content, Filesystem, FoundGroup, FoundVolume};
use serde_json::{Value, json};

const HELP: &str = "\
Examples:
  lapstrake look disk1.img disk2.img disk3.img
  lapstrake look /dev/sd[b-e]5 /dev/sd[b-e]6
  lapstrake look --json copy.raw
  lapstrake look data                     # that lapstrake serve --fuse serves

Exit codes:
  0  all was looked at
  1  there is nothing to look at
  2  usage
  3  a member or an array could not be looked at, or volumes lie on what is not here";

/// Show what is on arrays: partitions, LVM's volume groups and volumes, file systems.
///
/// Members of several arrays are put together as `scan` does, and volume groups over several arrays, as hybrid
/// arrays of NAS have them, are shown as one. What is no array's member, such as an image of an array or the
/// file that a server shows by FUSE, is looked at as it is. Of file systems it tells label, size, UUID and last
/// mount, as far as their superblocks have them. `cat --volume` and `cat --partition` read what is shown. Members
/// are opened for reading only and nothing is ever written to them.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Members of one or several arrays, images of what was on one, or names of arrays that are served as files
    #[arg(required = true, value_name = "MEMBER|IMAGE|NAME", value_parser = options::member_or_array(), add = complete::files(&[]))]
    members: Vec<MemberSpec>,
    #[command(flatten)]
    which: Which,
    /// Also use members that are out of date, and arrays that are dirty and degraded
    #[arg(short, long)]
    force: bool,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let stack = Stack::open(&args.members, &args.which, args.force)?;
    if args.json {
        outln!("{:#}", report(&stack));
    } else {
        out!("{}", width::fitted(&text_of(&stack)));
    }
    let mut volumes = stack.survey.groups.iter().flat_map(|group| &group.volumes);
    let is_whole = stack.failed == 0 && volumes.all(|volume| volume.map.is_ok());
    stack.stop();
    Ok(if is_whole { Exit::Done } else { Exit::Degraded })
}

fn size(bytes: u64) -> String {
    format!("{} KiB{}", bytes >> 10, text::human(bytes))
}

fn filesystem(found: &Filesystem) -> String {
    let mut line = found.kind.to_string();
    if !found.label.is_empty() {
        line += &format!(" {:?}", found.label);
    }
    if let Some(bytes) = found.bytes {
        line += &format!(", {}", size(bytes));
    }
    line += &format!(", UUID {}", found.uuid);
    if found.mounted.is_some() || found.mounted_on.is_some() {
        line += ", last mounted";
    }
    if let Some(at) = found.mounted {
        line += &format!(" {}", text::time(at));
    }
    if let Some(place) = &found.mounted_on {
        line += &format!(" on {place:?}");
    }
    line
}

fn content(content: &Content) -> String {
    match content {
        Content::Unknown => "nothing that is known here".into(),
        Content::Table(table) => {
            let count = table.data().count();
            format!("{} partition table, {count} partitions", table.scheme)
        }
        Content::PhysicalVolume(Ok(volume)) => {
            let group =
                volume.group.as_ref().map_or("no volume group known from it", |it| &it.name);
            format!("LVM physical volume of {group}, UUID {}", volume.uuid)
        }
        Content::PhysicalVolume(Err(error)) => {
            format!("LVM physical volume that cannot be used: {error}")
        }
        Content::Filesystem(found) => filesystem(found),
    }
}

fn text_of(stack: &Stack) -> String {
    let mut out = String::new();
    for (source, found) in stack.sources.iter().zip(&stack.survey.devices) {
        let what = if source.is_array() { "array " } else { "" };
        out += &format!("{what}{}, {}\n", source.name(), size(found.bytes));
        out += &format!("  {}\n", content(&found.content));
        for part in &found.parts {
            let name =
                if part.name.is_empty() { String::new() } else { format!(" {:?}", part.name) };
            let bytes = size(part.range.end - part.range.start);
            out += &format!(
                "  partition {}{name}, {bytes}: {}\n",
                part.number,
                content(&part.content)
            );
        }
    }
    for group in &stack.survey.groups {
        out += &group_text(stack, group);
    }
    out
}

fn group_text(stack: &Stack, found: &FoundGroup) -> String {
    let (group, present) = (&found.group, found.present.len());
    let mut out = format!("volume group {}, UUID {}\n", group.name, group.id);
    out += &format!("  {present} of {} physical volumes\n", group.physical.len());
    for volume in &found.volumes {
        let (lv, name) = (&group.volumes[volume.index], volume.name(found));
        out += &format!("  {}/{name}, {}, {}", group.name, lv.kind(), size(lv.bytes()));
        out += &match &volume.map {
            Ok(map) => {
                let on: Vec<String> =
                    map.devices().iter().map(|nth| stack.sources[*nth].name()).collect();
                format!(" on {}: {}\n", on.join(", "), content(&volume.content))
            }
            Err(error) => format!(": not read: {error}\n"),
        };
    }
    out
}

fn content_json(content: &Content) -> Value {
    match content {
        Content::Unknown => Value::Null,
        Content::Table(table) => {
            json!({ "kind": "partition table", "scheme": table.scheme.to_string() })
        }
        Content::PhysicalVolume(Ok(volume)) => json!({
            "kind": "LVM physical volume",
            "uuid": volume.uuid.to_string(),
            "group": volume.group.as_ref().map(|group| &group.name),
        }),
        Content::PhysicalVolume(Err(error)) => {
            json!({ "kind": "LVM physical volume", "error": error.to_string() })
        }
        Content::Filesystem(found) => json!({
            "kind": found.kind.to_string(),
            "label": found.label,
            "uuid": found.uuid,
            "bytes": found.bytes,
            "last_mount_time": found.mounted,
            "last_mounted_on": found.mounted_on,
        }),
    }
}

fn volume_json(stack: &Stack, found: &FoundGroup, volume: &FoundVolume) -> Value {
    let lv = &found.group.volumes[volume.index];
    let names = |map: &lapstrake_volumes::Map| {
        map.devices().iter().map(|nth| stack.sources[*nth].name()).collect::<Vec<_>>()
    };
    json!({
        "name": format!("{}/{}", found.group.name, lv.name),
        "kind": lv.kind(),
        "bytes": lv.bytes(),
        "on": volume.map.as_ref().ok().map(names),
        "error": volume.map.as_ref().err().map(ToString::to_string),
        "content": content_json(&volume.content),
    })
}

fn report(stack: &Stack) -> Value {
    let devices = stack.sources.iter().zip(&stack.survey.devices).map(|(source, found)| {
        let parts = found.parts.iter().map(|part| {
            json!({
                "number": part.number,
                "name": part.name,
                "offset": part.range.start,
                "bytes": part.range.end - part.range.start,
                "content": content_json(&part.content),
            })
        });
        json!({
            "name": source.name(),
            "is_array": source.is_array(),
            "bytes": found.bytes,
            "content": content_json(&found.content),
            "partitions": parts.collect::<Vec<_>>(),
        })
    });
    let groups = stack.survey.groups.iter().map(|found| {
        let volumes = found.volumes.iter().map(|volume| volume_json(stack, found, volume));
        json!({
            "name": found.group.name,
            "uuid": found.group.id.to_string(),
            "physical_volumes": found.group.physical.len(),
            "physical_volumes_found": found.present.len(),
            "volumes": volumes.collect::<Vec<_>>(),
        })
    });
    json!({
        "devices": devices.collect::<Vec<_>>(),
        "groups": groups.collect::<Vec<_>>(),
        "not_opened": stack.failed,
    })
}
