//! `lapstrake add`, `re-add`, `fail`, `replace` and `remove`: the members of a served array.

use crate::exit::{Exit, Failure, Outcome};
use crate::{complete, options, patience, target::Target};
use lapstrake::control::{
    Added, FAILED, Failed, HowAdded, Refused, Removed, Replaced, Reply, Request,
};
use lapstrake_device::{MemberSpec, harmless};
use lapstrake_host::scan::LookError;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use std::ffi::OsString;
use std::fmt::Display;
use tracing::error;

const ADD_HELP: &str = "\
Examples:
  lapstrake add data disk4.img
  lapstrake add data /dev/sdf /dev/sdg --write-mostly

Exit codes:
  0  each is in: re-added, as a spare, or being rebuilt (`lapstrake wait` waits for that)
  1  one could not be added, or the array is not served
  2  usage";

const RE_ADD_HELP: &str = "\
Examples:
  lapstrake re-add data disk2.img

Exit codes:
  0  each is back
  1  one is no former member, or missed more than is on record; it is left as it was
  2  usage";

const FAIL_HELP: &str = "\
Examples:
  lapstrake fail data disk2.img
  lapstrake fail data 2            (its number, as status shows it)

A member is named by its path when it was taken in, or by another that leads to that place (also if the
file was deleted; not by a hard link, nor by a name that it was given since), with the window that it
has, if any; digits alone are a number: ./2 is a file.

Exit codes:
  0  each is faulty now
  1  one is not, or the array is not served
  2  usage";

const REPLACE_HELP: &str = "\
Examples:
  lapstrake add data new.img && lapstrake replace data disk2.img && lapstrake wait data
  lapstrake replace data disk2.img --with new.img

Members and spares are named as for `lapstrake fail`.

Exit codes:
  0  each is being replaced, or waits for a spare
  1  one is not, or the array is not served
  2  usage";

const REMOVE_HELP: &str = "\
Examples:
  lapstrake remove data disk2.img
  lapstrake remove data failed

Members are named as for `lapstrake fail`; ./failed is a file.

Exit codes:
  0  none of them is in the array any more
  1  one still is, or the array is not served
  2  usage";

#[derive(clap::Subcommand)]
pub enum Command {
    /// Add members to an array that is being served.
    ///
    /// A former member is re-added if that can be done. Any other is made a spare, with a new
    /// superblock; if the array is degraded, a spare is rebuilt at once.
    #[command(after_long_help = ADD_HELP)]
    Add {
        #[command(flatten)]
        target: Target,
        /// What to add
        #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
        members: Vec<MemberSpec>,
        /// Read from them only if there is no other way (RAID1)
        #[arg(short = 'W', long)]
        write_mostly: bool,
        /// Take them even if they hold something: a file system, a member of another array, writes of this
        /// array's that nobody else has
        #[arg(short, long)]
        force: bool,
    },
    /// Take former members back.
    ///
    /// Only what they missed is written, as far as the write-intent bitmap tells it.
    #[command(after_long_help = RE_ADD_HELP)]
    ReAdd {
        #[command(flatten)]
        target: Target,
        /// What to take back
        #[arg(required = true, value_name = "MEMBER", value_parser = options::member(), add = complete::files(&[]))]
        members: Vec<MemberSpec>,
    },
    /// Declare members faulty: the array goes on without them.
    ///
    /// While a resync of copies is due, another copy may answer from then on: what was being written when the array
    /// was not stopped cleanly may then read as it was before.
    #[command(after_long_help = FAIL_HELP)]
    Fail {
        #[command(flatten)]
        target: Target,
        /// Paths, or numbers as status shows them
        #[arg(required = true, value_name = "MEMBER", add = complete::members(&[]))]
        members: Vec<Name>,
        /// Also while a resync of a parity level is due, or another has bad blocks, which need the member: its data
        /// there may be lost
        #[arg(short, long)]
        force: bool,
    },
    /// Have members replaced by spares while they still serve.
    ///
    /// A spare gets a copy of what the member holds, and takes its place when it has all; the member is
    /// faulty then, and can be removed. Without a spare the member waits for one to be added.
    #[command(after_long_help = REPLACE_HELP)]
    Replace {
        #[command(flatten)]
        target: Target,
        /// Paths, or numbers as status shows them
        #[arg(required = true, value_name = "MEMBER", add = complete::members(&[]))]
        members: Vec<Name>,
        /// The spare that takes the member's place; may be given once for each member, in order
        #[arg(long, value_name = "SPARE", add = complete::members(&[]))]
        with: Vec<Name>,
    },
    /// Remove members that are faulty or spare; their files and devices are free then.
    ///
    /// What still runs on them is waited for (after Ctrl-C they are out all the same). Under an overlay they stay open
    /// until the array stops.
    #[command(after_long_help = REMOVE_HELP)]
    Remove {
        #[command(flatten)]
        target: Target,
        /// Paths, or numbers as status shows them; `failed` is all that are faulty
        #[arg(required = true, value_name = "MEMBER|failed", add = complete::members(&["failed"]))]
        members: Vec<Name>,
    },
}

impl Command {
    pub fn target(&self) -> &Target {
        match self {
            Self::Add { target, .. }
            | Self::ReAdd { target, .. }
            | Self::Fail { target, .. }
            | Self::Replace { target, .. }
            | Self::Remove { target, .. } => target,
        }
    }

    pub fn run(&self) -> Outcome {
        let target = self.target();
        // Tells, once, that the array is not served.
        target.detail(None)?;
        let add = |spec: &MemberSpec, force: bool, write_mostly: bool, re_add: bool| {
            // The array's server would wait for it without an end; what else is wrong with it, that one tells.
            if let Err(silent @ LookError::Silent { .. }) = patience::look(spec) {
                return Err(silent.into());
            }
            Ok(Request::Add { member: absolute(spec)?, force, write_mostly, re_add })
        };
        match self {
            Self::Add { members, write_mostly, force, .. } => {
                each(target, members, |spec| add(spec, *force, *write_mostly, false), added)
            }
            Self::ReAdd { members, .. } => {
                each(target, members, |spec| add(spec, false, false, true), added)
            }
            Self::Fail { members, force, .. } => {
                let request =
                    |name: &Name| Ok(Request::Fail { member: meant(name)?, force: *force });
                each(target, members, request, failed)
            }
            Self::Replace { members, with, .. } => {
                if with.len() > members.len() {
                    return Err(Failure::usage("there are more --with than members to replace"));
                }
                let spares = with.iter().map(Some).chain(std::iter::repeat(None));
                let pairs: Vec<Pair<'_>> = members
                    .iter()
                    .zip(spares)
                    .map(|(member, with)| Pair { member, with })
                    .collect();
                let request = |pair: &Pair<'_>| {
                    let with = pair.with.map(meant).transpose()?;
                    Ok(Request::Replace { member: meant(pair.member)?, with })
                };
                each(target, &pairs, request, replaced)
            }
            Self::Remove { members, .. } => {
                let request = |name: &Name| Ok(Request::Remove { member: meant_or_failed(name)? });
                each(target, members, request, removed)
            }
        }
    }
}

/// Asks the same for each member; one that is refused does not keep the others from it. `tell` makes a
/// sentence of an answer and of what the user called the member.
fn each<M: Display, A: DeserializeOwned + Serialize>(
    target: &Target,
    members: &[M],
    request: impl Fn(&M) -> Result<Request, Failure>,
    tell: fn(&A, &str) -> String,
) -> Outcome {
    let mut exit = Exit::Done;
    let mut reports = Vec::new();
    for member in members {
        let given = member.to_string();
        let done = request(member).and_then(|request| Ok(target.ask(&request)?));
        let mut report = match done {
            Ok(answer) => {
                if !target.json {
                    outln!("{}: {}", target.name, tell(&answer, &given));
                }
                serde_json::to_value(Reply { ok: true, answer })?
            }
            Err(Failure { message, .. }) => {
                error!("{message}");
                exit = Exit::Failed;
                serde_json::to_value(Reply { ok: false, answer: Refused { error: message } })?
            }
        };
        report["given"] = given.into();
        reports.push(report);
    }
    if target.json {
        outln!("{:#}", json!({ "name": target.name, "members": reports }));
    }
    Ok(exit)
}

fn added(answer: &Added, given: &str) -> String {
    let how = match answer.how {
        HowAdded::Recovery => "added, and is being rebuilt",
        HowAdded::ReAdded => "re-added",
        _ => "added as a spare",
    };
    format!("{}: {how}", harmless(given))
}

fn failed(_: &Failed, given: &str) -> String {
    format!("{given}: faulty")
}

/// A member, and the spare that is to take its place.
struct Pair<'a> {
    member: &'a Name,
    with: Option<&'a Name>,
}

impl Display for Pair<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.member.fmt(f)
    }
}

fn replaced(answer: &Replaced, given: &str) -> String {
    match &answer.replacement {
        Some(by) => format!("{given}: is being replaced by {}", by.path),
        None => format!("{given}: is replaced as soon as there is a spare"),
    }
}

fn removed(answer: &Removed, _: &str) -> String {
    if answer.removed.is_empty() {
        return "no member is faulty".into();
    }
    format!("{}: removed", answer.removed.join(", "))
}

/// What to call a member when speaking to its server, which has another working directory.
pub fn absolute(spec: &MemberSpec) -> Result<String, Failure> {
    let path = options::absolute(&spec.path)?.into();
    Ok(MemberSpec { path, ..spec.clone() }.exact())
}

/// What the user calls a member that is there already.
#[derive(Clone)]
pub struct Name(OsString);

impl From<OsString> for Name {
    fn from(text: OsString) -> Self {
        Self(text)
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&harmless(&self.0.to_string_lossy()))
    }
}

/// What its server calls it: its file's path without links, which is one name of it wherever it was
/// given. Digits are a number, which its server knows.
fn meant(name: &Name) -> Result<String, Failure> {
    if let Some(number) = name.0.to_str().filter(|text| text.bytes().all(|b| b.is_ascii_digit())) {
        return Ok(number.to_owned());
    }
    let spec = options::spec(&name.0).map_err(Failure::usage)?.resolved()?;
    match spec.path.to_str() {
        Some(_) => absolute(&spec),
        None => Err(Failure::new(format!(
            "{name}: not UTF-8, which the control socket speaks; nothing was changed; give the member's \
             number, as `lapstrake status` shows it in brackets"
        ))),
    }
}

/// As [`meant`], or the word for all that are faulty.
fn meant_or_failed(name: &Name) -> Result<String, Failure> {
    if name.0 == FAILED { Ok(FAILED.to_owned()) } else { meant(name) }
}
