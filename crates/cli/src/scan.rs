//! `lapstrake scan`.

use crate::exit::{Exit, Failure, Outcome};
use crate::options;
use crate::patience;
use crate::text;
use lapstrake_device::{MemberSpec, OpenError, quoted_path};
use lapstrake_host::scan::{self, Completeness, Found, FoundArray, Look, LookError};
use lapstrake_host::{SUPERBLOCKS, bitmap_next, describe_at, describe_undecided, image_format};
use lapstrake_lab::width;
use lapstrake_metadata::Superblock;
use lapstrake_metadata::assemble::{Refusal, Verdict};
use lapstrake_metadata::detect::{self, Doubt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tracing::warn;

const HELP: &str = "\
Examples:
  lapstrake scan
  lapstrake scan /backup/nas-disks
  lapstrake scan --json *.img

Exit codes:
  0  every array that was found is complete (or none was found)
  1  something that was named could not be looked at
  2  usage
  3  an array is degraded, incomplete or unsupported; or there is no array, but a partition table in what was named";

/// Find arrays: which members are there, and what they amount to.
///
/// Looks at files, at block devices, at everything in a directory (not below it); without any, at
/// all block devices of this machine. Images of whole disks are looked into: what is in partition 3 of disk.img is
/// disk.img#3. A superblock that is a partition's is not taken for the disk's, nor what is an array's content for its
/// member, and it is told. For each array it tells what becomes of every candidate and
/// why, by md's rules of assembly, and the command that serves it, or which program has members of it locked for
/// writing: then what their superblocks say may change, and what they say of being at rest is left out (null in JSON).
/// What has several names (links) counts once, by the first. What does not answer within a second is named, and given
/// up after two minutes, each by itself. No command is proposed for an array of which a member may be among what could
/// not be looked at. Nothing is locked or written.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Directories, files, block devices, or windows of them
    #[arg(value_name = "DIR|MEMBER")]
    places: Vec<OsString>,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let (members, silent) = members(&args.places)?;
    let by_default = args.places.is_empty();
    let looks = members.iter().flat_map(|wanted| wanted.looks(by_default));
    let found = scan::scan(silent.into_iter().map(Err).chain(looks));
    // Of all of a machine's devices some always fail.
    let counts = |failure: &LookError| !by_default || matches!(failure, LookError::Silent { .. });
    let is_packed = |look: &Look| image_format(look.findings()).is_some();
    let may_lack = found.failures.iter().any(counts) || found.others.iter().any(is_packed);
    if args.json {
        outln!("{:#}", report(&found, may_lack));
    } else {
        out!("{}", width::fitted(&text_of(&found, by_default, may_lack)));
    }
    for failure in &found.failures {
        warn!("{failure}");
    }
    let is_complete = |array: &FoundArray| array.completeness() == Completeness::Complete;
    let only_tables = !by_default && found.arrays.is_empty() && found.others.iter().any(has_table);
    let whole = found.arrays.iter().all(is_complete) && !only_tables;
    // Without a name given, a device that cannot be read (no rights, no medium, no answer) is no failure, if any can be.
    let has_looked = !found.arrays.is_empty() || !found.others.is_empty();
    Ok(match (whole, found.failures.is_empty() || by_default && has_looked) {
        (_, false) => Exit::Failed,
        (false, _) => Exit::Degraded,
        (true, true) => Exit::Done,
    })
}

/// What is to be looked at.
struct Wanted {
    spec: MemberSpec,
    /// It was found in a directory, not named.
    is_listed: bool,
}

impl Wanted {
    /// At it and its partitions; none if it only looked like a member.
    fn looks(&self, by_default: bool) -> Vec<Result<Look, LookError>> {
        let looks = scan::with_partitions(&self.spec, by_default, patience::look);
        let is_none = match &looks[0] {
            Err(LookError::Open(OpenError::Kind { .. })) => true,
            Err(LookError::Open(OpenError::Io { source, .. })) => {
                source.kind() == ErrorKind::NotFound
            }
            _ => false,
        };
        if self.is_listed && is_none { Vec::new() } else { looks }
    }
}

/// What is at these places, and those that do not answer.
fn members(places: &[OsString]) -> Result<(Vec<Wanted>, Vec<LookError>), Failure> {
    let wanted = |is_listed| move |spec| Wanted { spec, is_listed };
    if places.is_empty() {
        let told = |error| Failure::new(format!("/proc/partitions: cannot read it: {error}"));
        let devices = scan::devices().map_err(told)?;
        return Ok((devices.into_iter().map(wanted(false)).collect(), Vec::new()));
    }
    let (mut members, mut silent) = (Vec::new(), Vec::new());
    for place in places {
        let path = PathBuf::from(place);
        let list = move || path.is_dir().then(|| scan::directory(&path));
        match patience::ask(Path::new(place), patience::LONG, list) {
            Some(Some(inside)) => {
                let told =
                    |error| Failure::new(format!("{}: cannot list it: {error}", place.display()));
                members.extend(inside.map_err(told)?.into_iter().map(wanted(true)));
            }
            Some(None) => {
                let told = |why| Failure::usage(format!("{}: {why}", place.display()));
                members.push(wanted(false)(options::spec(place).map_err(told)?));
            }
            None => silent.push(patience::silent(Path::new(place))),
        }
    }
    Ok((members, silent))
}

fn word(completeness: Completeness) -> &'static str {
    match completeness {
        Completeness::Complete => "complete",
        Completeness::Degraded => "degraded",
        Completeness::Incomplete => "incomplete",
        Completeness::Unsupported => "unsupported",
    }
}

/// Each candidate with what becomes of it, and whether it is of use.
fn verdicts(array: &FoundArray) -> Vec<(&Look, String, bool)> {
    let name = |id: usize| array.candidates[id].spec().to_string();
    let verdict = |id: usize| {
        let assembly = array.assembly.as_ref().ok()?;
        assembly.verdicts.iter().find(|(of, _)| *of == id).map(|(_, verdict)| verdict)
    };
    let all = array.candidates.iter().enumerate();
    all.map(|(id, look)| match verdict(id) {
        Some(verdict) => (look, verdict.describe(&name), !matches!(verdict, Verdict::Left(_))),
        None => (look, "not judged".into(), true),
    })
    .collect()
}

fn resync_due(array: &FoundArray) -> bool {
    array.assembly.as_ref().is_ok_and(|assembly| assembly.resync_from.is_some())
}

fn may_be_old(array: &FoundArray) -> bool {
    array.assembly.as_ref().is_ok_and(|assembly| assembly.newly_degraded)
}

/// Members that may be older copies of themselves, and by how many seconds.
fn older(array: &FoundArray) -> impl Iterator<Item = (String, u64)> {
    let older = array.assembly.iter().flat_map(|assembly| &assembly.older);
    older.map(|(id, lag_s)| (array.candidates[*id].spec().to_string(), *lag_s))
}

/// What keeps the array from being written: a reshape, superblocks against which something speaks.
fn notes(array: &FoundArray) -> impl Iterator<Item = String> {
    let reshape = array.reshape.as_ref().map(|reshape| {
        let (before, after) = (geometry(&reshape.before), geometry(&reshape.after));
        let doubt = match reshape.is_seldom_recorded() {
            false => "",
            true => {
                "; Linux records the position of such a reshape seldom, and may have rewritten more: if what is read \
                 from there on makes no sense, --reshape-position says up to where it has"
            }
        };
        format!(
            "a reshape is in progress ({before} to {after}, at byte {} of the array): with --read-only all of it is read \
             and nothing moved, without it serve goes on with a reshape between RAID4, 5 and 6, or of a RAID10, that needs no \
             backup file{doubt}",
            reshape.position.bytes()
        )
    });
    let doubted = array.candidates.iter().flat_map(|look| {
        let doubts = look.findings().doubts();
        doubts.map(|(sb, doubt)| {
            let (at, version) = (sb.super_sector().0, sb.version());
            format!("{}: the superblock {version} at sector {at} {}", look.spec(), doubt.describe())
        })
    });
    reshape.into_iter().chain(doubted)
}

/// What a reshape changes.
fn geometry(sb: &Superblock) -> String {
    let level = sb.level().map_or("unknown level".into(), |level| level.to_string());
    let layout = sb.layout().map(|layout| layout.name().into_owned()).unwrap_or_default();
    let (devices, chunk) = (sb.raid_disks(), sb.chunk().0 / 2);
    format!("{level} {layout} of {devices} raid devices with chunks of {chunk} KiB")
}

/// Whether something speaks against a superblock that was taken: nothing is to be written then.
fn is_doubted(array: &FoundArray) -> bool {
    let doubt = |look: &Look| look.findings().doubt(look.superblock()?);
    verdicts(array).into_iter().any(|(look, _, used)| used && doubt(look).is_some())
}

/// Why the array cannot be started as it is.
fn obstacle(array: &FoundArray) -> Option<String> {
    let name = |id: usize| array.candidates[id].spec().to_string();
    if let Some((id, error)) = &array.unusable_bitmap {
        let next = bitmap_next(error);
        return Some(format!(
            "the write-intent bitmap of {} cannot be used: {error}{next}",
            name(*id)
        ));
    }
    match &array.assembly {
        Ok(assembly) => {
            let refusal = assembly.start.as_ref().err().map(|refusal| refusal.describe(&name));
            refusal.or_else(|| array.obstacle.clone())
        }
        Err(error) => Some(error.describe(&name)),
    }
}

/// Whether halves of it were used without each other.
fn is_split(array: &FoundArray) -> bool {
    let start = array.assembly.as_ref().map(|assembly| &assembly.start);
    start.is_ok_and(|start| matches!(start, Err(Refusal::Split { .. })))
}

/// Who has members of it locked for writing, such as its server: their superblocks may change at any time.
fn users(array: &FoundArray) -> Option<BTreeSet<&String>> {
    let users: Vec<_> = array.candidates.iter().filter_map(Look::writers).collect();
    (!users.is_empty()).then(|| users.into_iter().flatten().collect())
}

/// Why another member of it may be there all the same, where not all of them are found.
fn hidden(found: &Found, array: &FoundArray, may_lack: bool) -> Option<String> {
    if array.completeness() == Completeness::Complete {
        return None;
    }
    let looks = found.arrays.iter().flat_map(|array| &array.candidates).chain(&found.others);
    let outer =
        looks.flat_map(|look| look.findings().doubts()).find_map(|(sb, doubt)| match doubt {
            Doubt::ContentOf(other) if sb.set_uuid() == array.uuid => Some(other.describe()),
            _ => None,
        });
    let is_inside = |outer: String| {
        format!(
            "a member of it is the content of {outer}: serve that one first, and give what it is served as"
        )
    };
    let unseen = || may_lack.then(|| "what could not be looked at may be a member of it".into());
    outer.map(is_inside).or_else(unseen)
}

fn command(array: &FoundArray, hidden: Option<&String>) -> Option<String> {
    if hidden.is_some() || array.unusable_bitmap.is_some() || array.obstacle.is_some() {
        return None;
    }
    let option = match &array.assembly.as_ref().ok()?.start {
        Ok(()) => "",
        Err(Refusal::NewlyDegraded { .. }) => "--degraded ",
        Err(_) => return None,
    };
    let is_only_read = is_doubted(array) || array.reshape.is_some();
    let doubted = if is_only_read { "--read-only " } else { "" };
    let used = verdicts(array).into_iter().filter(|(.., used)| *used);
    let words: Vec<String> = used.map(|(look, ..)| quoted_path(look.spec().argument())).collect();
    Some(format!("lapstrake serve {doubted}{option}{}", words.join(" ")))
}

fn text_of(found: &Found, by_default: bool, may_lack: bool) -> String {
    let mut out = String::new();
    for array in &found.arrays {
        out += &array_text(array, hidden(found, array, may_lack));
        out.push('\n');
    }
    if found.arrays.is_empty() {
        out += "no md array found\n";
    }
    for look in &found.others {
        // Of all of a machine's devices most hold something else.
        if !by_default || describes_md(look) {
            out += &format!("{}: {}\n", look.spec(), holds(look));
        }
    }
    out
}

/// What it holds, if that is no array's member.
fn holds(look: &Look) -> String {
    match look.findings().choose(&detect::Wanted::default()) {
        Err(undecided) => describe_undecided(&undecided, SUPERBLOCKS),
        Ok(_) => describe_at(look.spec(), look.findings()),
    }
}

fn has_table(look: &Look) -> bool {
    look.findings().table.is_some()
}

fn describes_md(look: &Look) -> bool {
    look.findings().all.iter().any(|finding| !matches!(finding, detect::Finding::Foreign { .. }))
}

fn array_text(array: &FoundArray, hidden: Option<String>) -> String {
    let Some(sb) = array.superblock() else { return String::new() };
    let mut out = format!("array {}", text::uuid(array.uuid));
    if !sb.name().is_empty() {
        out += &format!(" \"{}\"", sb.name());
    }
    let level = sb.level().map_or("unknown level".into(), |level| level.to_string());
    let (devices, version) = (sb.raid_disks(), sb.version());
    let completeness = word(array.completeness());
    out += &format!(": {level}, {devices} raid devices, metadata {version}: {completeness}\n");
    for (look, verdict, used) in verdicts(array) {
        let updated = look
            .superblock()
            .filter(|_| !used || is_split(array))
            .map(|sb| text::time(sb.utime().0));
        let updated = updated.map_or_else(String::new, |time| format!("; last updated {time}"));
        out += &format!("  {}: {verdict}{updated}\n", look.spec());
    }
    if let Some(users) = users(array) {
        let by: Vec<_> = users.into_iter().map(String::as_str).collect();
        let by = if by.is_empty() { String::new() } else { format!(" by {}", by.join(", ")) };
        out += &format!("  in use{by}; lapstrake status tells more if it is served here\n");
        return out;
    }
    for note in notes(array) {
        out += &format!("  {note}\n");
    }
    if resync_due(array) {
        out += "  not stopped cleanly, or its first sync is not done: a resync is due\n";
    }
    for (member, lag_s) in older(array) {
        out += &format!("  {}\n", text::older_copy(&member, lag_s));
    }
    if may_be_old(array) {
        out += &format!("  {}\n", text::MAY_BE_OLD);
    }
    if let Some(obstacle) = obstacle(array) {
        out += &format!("  not to be started as it is: {obstacle}\n");
    }
    if let Some(reason) = &hidden {
        out += &format!("  {reason}; so no command is proposed\n");
    }
    if let Some(command) = command(array, hidden.as_ref()) {
        out += &format!("  {command}\n");
    }
    out
}

fn report(found: &Found, may_lack: bool) -> Value {
    let other = |look: &Look| {
        json!({
            "member": look.spec().exact(),
            "holds": holds(look),
        })
    };
    let array = |array| array_json(array, hidden(found, array, may_lack));
    json!({
        "arrays": found.arrays.iter().map(array).collect::<Vec<_>>(),
        "others": found.others.iter().map(other).collect::<Vec<_>>(),
        "failures": found.failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn array_json(array: &FoundArray, hidden: Option<String>) -> Value {
    let users = users(array);
    let at_rest = users.is_none();
    let older = older(array).map(|(member, lag_s)| json!({ "member": member, "seconds": lag_s }));
    let candidates = verdicts(array).into_iter().map(|(look, verdict, used)| {
        json!({
            "member": look.spec().exact(),
            "events": look.superblock().map(Superblock::events),
            "update_time": look.superblock().map(|sb| sb.utime().0),
            "used": used,
            "verdict": verdict,
        })
    });
    let sb = array.superblock();
    json!({
        "uuid": text::uuid(array.uuid),
        "name": sb.map(Superblock::name),
        "version": sb.map(|sb| sb.version().as_str()),
        "level": sb.and_then(Superblock::level).map(|level| level.name()),
        "raid_devices": sb.map(Superblock::raid_disks),
        "state": word(array.completeness()),
        "in_use": users,
        "resync_due": at_rest.then(|| resync_due(array)),
        "may_be_old": at_rest.then(|| may_be_old(array)),
        "older": at_rest.then(|| older.collect::<Vec<_>>()),
        "obstacle": obstacle(array).filter(|_| at_rest),
        "notes": notes(array).chain(hidden.clone()).collect::<Vec<_>>(),
        "candidates": candidates.collect::<Vec<_>>(),
        "serve": command(array, hidden.as_ref()).filter(|_| at_rest),
    })
}
