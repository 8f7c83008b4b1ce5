//! Who may be written over.
//!
//! Images that the lab makes need no leave. A disk of the user's needs three: the plan calls it expendable, the
//! command line says `--destroy`, and where something is recognised on it (a superblock, a filesystem, a partition
//! table), its path or serial number is typed as well (`--overwrite`).

use super::obstacle;
use crate::plan::{Array, DiskPlace, Leg, Load, Plan};
use crate::record::SubjectKind;
use crate::run::filesystem_bytes;
use lapstrake_device::{Access, Member, MemberSpec};
use lapstrake_host::create::describe_finding;
use lapstrake_host::{probe, probe_around};
use std::path::Path;

/// What the command line allows.
#[derive(Clone, Debug, Default)]
pub struct Leave {
    /// Disks that the plan calls expendable may be written to.
    pub destroy: bool,
    /// These too that hold something: paths or serial numbers.
    pub overwrite: Vec<String>,
}

/// Everything that forbids the plan to be carried out with its images in `work`.
pub(crate) fn faults(plan: &Plan, leave: &Leave, work: &Path) -> Vec<String> {
    let mut faults = check(plan, leave).err().unwrap_or_default();
    faults.extend(unsound(plan));
    faults.extend(crowded(plan, work));
    if let Some(file) = work.ancestors().find(|place| place.exists() && !place.is_dir()) {
        faults.push(format!("{} is no directory: name another in [run]", file.display()));
    }
    faults
}

/// Images of which there is no room for those of one array.
fn crowded(plan: &Plan, work: &Path) -> Option<String> {
    let bytes = |name: &str| match plan.disk(name)?.place {
        DiskPlace::Make { bytes } => Some(bytes),
        DiskPlace::Given { .. } => None,
    };
    let measured = plan.arrays.iter().filter(|array| !array.states.is_empty());
    let of = |array: &Array| -> u64 { array.disks().into_iter().filter_map(bytes).sum() };
    let needed = measured.map(of).max().unwrap_or(0);
    let place = work.ancestors().find(|place| place.exists())?;
    let free = filesystem_bytes(place).ok()?;
    let (mib, place) = (|bytes: u64| bytes >> 20, place.display());
    (needed > free).then(|| {
        format!(
            "images of {} MiB are to be made, and {place} has {} MiB free; take smaller ones, or another place \
             (directory in [run])",
            mib(needed),
            mib(free)
        )
    })
}

/// # Errors
/// A line for each disk that may not be written to, and why.
fn check(plan: &Plan, leave: &Leave) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    for disk in &plan.disks {
        let DiskPlace::Given { spec, expendable } = &disk.place else { continue };
        let mut users = plan.arrays.iter().filter(|array| writes_to(plan, array, &disk.name));
        if users.next().is_some() {
            faults.extend(fault(&disk.name, spec, *expendable, leave));
        }
    }
    for array in plan.arrays.iter().filter(|array| !array.states.is_empty()) {
        let Some(path) = array.path.as_ref().filter(|path| !path.is_dir()) else { continue };
        let loads = plan.loads(array).any(|workload| workload.writes());
        if array.kind == SubjectKind::Existing && (loads || array.shape.filesystem.is_some()) {
            faults.extend(fault(&array.name, &MemberSpec::whole(path), array.expendable, leave));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

/// Whether measuring an array writes to a disk.
fn writes_to(plan: &Plan, array: &Array, disk: &str) -> bool {
    if array.states.is_empty() {
        // What it is part of is asked itself.
        return false;
    }
    let below = array.members.iter().flat_map(Leg::disks).any(|name| name == disk);
    let as_it_is = array.kind == SubjectKind::Disk && array.shape.filesystem.is_none();
    below && (!as_it_is || plan.loads(array).any(|workload| workload.writes()))
}

fn fault(name: &str, spec: &MemberSpec, expendable: bool, leave: &Leave) -> Option<String> {
    let untouched = "nothing was written to it";
    if !expendable {
        return Some(format!(
            "{name} ({spec}): the plan writes to it and does not call it expendable; {untouched}; if nobody needs \
             what it holds, say expendable = true there"
        ));
    }
    if !leave.destroy {
        return Some(format!("{name} ({spec}): {untouched}; --destroy allows it"));
    }
    let member = match Member::open(spec, Access::ReadWrite) {
        Ok(member) => member,
        Err(error) => return Some(format!("{name}: {error}; {untouched}")),
    };
    let found = probe(&member).and_then(|own| Ok((own, probe_around(&member)?)));
    let (own, around) = match found {
        Ok(found) => found,
        Err(error) => {
            return Some(format!("{name} ({spec}): cannot read it: {error}; {untouched}"));
        }
    };
    let serial = serial(&spec.path);
    let is_typed = |typed: &String| {
        let as_member = typed.parse().is_ok_and(|other| same_place(&other, spec));
        Some(typed) == serial.as_ref() || as_member || same_file(Path::new(typed), &spec.path)
    };
    let mut holds: Vec<String> =
        own.all.iter().chain(&around).map(|finding| describe_finding(finding).0).collect();
    holds.dedup();
    if holds.is_empty() || leave.overwrite.iter().any(is_typed) {
        return None;
    }
    let type_this = serial.unwrap_or_else(|| spec.to_string());
    Some(format!(
        "{name} ({spec}): holds {}; {untouched}; if nobody needs it, --overwrite {type_this}",
        holds.join(" and ")
    ))
}

/// The same window, however it is written.
fn same_place(a: &MemberSpec, b: &MemberSpec) -> bool {
    (a.offset, a.size) == (b.offset, b.size) && same_file(&a.path, &b.path)
}

fn same_file(a: &Path, b: &Path) -> bool {
    let there = |path: &Path| path.canonicalize().ok();
    there(a).is_some_and(|a| there(b) == Some(a))
}

/// A disk's serial number, if the system knows it.
pub(crate) fn serial(path: &Path) -> Option<String> {
    let name = path.canonicalize().ok()?.file_name()?.to_str()?.to_owned();
    let places = ["serial", "device/serial", "../serial", "../device/serial"];
    let read =
        |place: &&str| std::fs::read_to_string(format!("/sys/class/block/{name}/{place}")).ok();
    let serial = places.iter().find_map(read)?;
    Some(serial.trim().to_owned()).filter(|serial| !serial.is_empty())
}

/// Workloads of a plan that verify what an array gives whose redundancy is not right.
fn unsound(plan: &Plan) -> Vec<String> {
    let verifies =
        plan.workloads.iter().any(|workload| matches!(&workload.load, Load::Io(io) if io.verify));
    let assumed = plan.rules.prepare == crate::plan::Prepare::AssumeClean;
    let lacks = |array: &&Array| {
        array.states.iter().any(|state| *state != crate::record::State::Healthy)
            && array.disks().iter().any(|name| {
                matches!(plan.disk(name).map(|disk| &disk.place), Some(DiskPlace::Given { .. }))
            })
    };
    let wrong = |array: &Array| {
        format!(
            "{}: a workload verifies, a member is missing, and prepare = \"assume-clean\" leaves parity and copies \
             wrong: verify would fail through no fault of the array; take prepare = \"sync\"",
            array.name
        )
    };
    if !(verifies && assumed) {
        return Vec::new();
    }
    plan.arrays.iter().filter(lacks).map(wrong).collect()
}

/// Arrays that cannot be measured here, and why.
pub(crate) fn obstacles(plan: &Plan) -> Vec<(String, String)> {
    let measured = plan.arrays.iter().filter(|array| !array.states.is_empty());
    measured.filter_map(|array| Some((array.name.clone(), obstacle::obstacle(array)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(directory: &Path, expendable: bool, read: &str) -> Plan {
        let text = format!(
            "name = \"t\"\n[[disk]]\nname = \"a\"\npath = \"a.img\"\nexpendable = {expendable}\n\
             [[array]]\nsystem = \"disk\"\nmembers = [\"a\"]\n\
             [[workload]]\nname = \"w\"\npattern = \"sequential\"\nread = \"{read}\"\n"
        );
        Plan::parse(&text, directory).unwrap()
    }

    fn leave(overwrite: &[&str]) -> Leave {
        Leave {
            destroy: true,
            overwrite: overwrite.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn a_disk_needs_the_plans_leave_the_command_lines_and_its_name_if_it_holds_something() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        std::fs::File::create(&path).unwrap().set_len(16 << 20).unwrap();
        let faults =
            |expendable, read, leave: Leave| check(&plan(dir.path(), expendable, read), &leave);
        // Reading needs no leave.
        assert_eq!(faults(false, "100%", Leave::default()), Ok(()));
        assert!(
            faults(false, "50%", leave(&[])).unwrap_err()[0]
                .contains("does not call it expendable")
        );
        assert!(
            faults(true, "50%", Leave::default()).unwrap_err()[0].contains("--destroy allows it")
        );
        assert_eq!(faults(true, "50%", leave(&[])), Ok(()));
        // An ext4 superblock's magic.
        let mut block = vec![0u8; 4096];
        block[1080..1082].copy_from_slice(&[0x53, 0xef]);
        std::fs::write(&path, [block, vec![0; 1 << 20]].concat()).unwrap();
        let why = faults(true, "50%", leave(&["/dev/other"])).unwrap_err();
        assert!(
            why[0].contains("holds")
                && why[0].ends_with(&format!("--overwrite {}", path.display())),
            "{why:?}"
        );
        assert_eq!(faults(true, "50%", leave(&[path.to_str().unwrap()])), Ok(()));
    }

    #[test]
    fn images_that_have_no_room_are_not_begun() {
        let dir = tempfile::tempdir().unwrap();
        let of = |size| {
            let text = format!(
                "name = \"t\"\n[[disk]]\nmake = [\"a\", \"b\"]\nsize = \"{size}\"\n\
                 [[array]]\nlevel = 0\nmembers = 2\n[[workload]]\nname = \"w\"\npattern = \"sequential\"\n"
            );
            let plan = Plan::parse(&text, dir.path()).unwrap();
            faults(&plan, &Leave::default(), &dir.path().join("work"))
        };
        assert_eq!(of("16M"), Vec::<String>::new());
        std::fs::write(dir.path().join("work"), "").unwrap();
        assert!(of("16M")[0].ends_with("work is no directory: name another in [run]"));
        assert!(
            of("900T")[0].starts_with("images of 1887436800 MiB are to be made"),
            "{:?}",
            of("900T")
        );
    }

    #[test]
    fn what_a_disk_holds_around_a_window_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        let mut bytes = vec![0; 32 << 20];
        bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
        std::fs::write(&path, bytes).unwrap();
        let spec: MemberSpec = format!("{}@16M+8M", path.display()).parse().unwrap();
        let why = fault("a", &spec, true, &leave(&[])).unwrap();
        assert!(
            why.contains("filesystem") && why.ends_with(&format!("--overwrite {spec}")),
            "{why}"
        );
        assert_eq!(fault("a", &spec, true, &leave(&[&spec.to_string()])), None);
    }

    #[test]
    fn a_window_is_the_same_however_it_is_typed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.img");
        std::fs::File::create(&path).unwrap();
        let spec = |text: &str| text.replace("a.img", path.to_str().unwrap()).parse().unwrap();
        assert!(same_place(&spec("a.img@1M+40M"), &spec("a.img@1048576+41943040")));
        assert!(!same_place(&spec("a.img@1M+40M"), &spec("a.img@2M+40M")));
        assert!(!same_place(&spec("a.img@1M+40M"), &spec("a.img")));
    }
}
