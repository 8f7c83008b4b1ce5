//! What a served array answers to a line: reads the request, has it carried out, and says what came of it.

use super::Served;
use crate::grow::grow_bitmap;
use crate::join::{Join, join};
use crate::message::{self, Answer, BitmapWish, Command, Deleted};
use lapstrake_control::{
    ALWAYS, Added, Begun, BitmapPlace, Described, Failed, Grown, Refused, Removed, Replaced, Reply,
    Request, Set, Settings, Stopped, VERSION,
};
use lapstrake_device::{MemberSpec, lies_on, quoted};
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::mpsc;

pub(super) fn answer(line: &[u8], served: &Served) -> Value {
    read(line).and_then(|request| carry_out(request, served)).unwrap_or_else(refusal)
}

pub(super) fn refusal(error: String) -> Value {
    line(&Reply { ok: false, answer: Refused { error } })
}

fn reply(answer: impl Serialize) -> Value {
    line(&Reply { ok: true, answer })
}

fn line(reply: &Reply<impl Serialize>) -> Value {
    serde_json::to_value(reply).expect("its paths are UTF-8, and its maps have names for keys")
}

fn read(line: &[u8]) -> Result<Request, String> {
    let value = serde_json::from_slice(line)
        .map_err(|error| format!("not JSON: {error}; nothing was changed"))?;
    let Value::Object(mut fields) = value else {
        return Err("no \"command\" in the request; nothing was changed".into());
    };
    // What may be left out may be null.
    fields.retain(|_, value| !value.is_null());
    check_types(&fields, &FIELDS)?;
    let version = fields.get("version").and_then(Value::as_u64).unwrap_or_default();
    if version > u64::from(VERSION) {
        return Err(format!(
            "the request needs version {version} of the control protocol, and this server speaks {VERSION}; nothing \
             was changed"
        ));
    }
    if let Some(Value::Object(settings)) = fields.get("settings") {
        check_types(settings, &SETTINGS)?;
    }
    let command = fields.get("command").cloned();
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| misunderstood(&error.to_string(), command.as_ref()))
}

/// What a field of a request is.
#[derive(Clone, Copy)]
enum Type {
    Text,
    Flag,
    /// A whole number, at most this.
    Number(u64),
    Object,
}

/// Fields of requests. Others are passed over.
const FIELDS: [(&str, Type); 12] = [
    ("command", Type::Text),
    ("version", Type::Number(u64::MAX)),
    ("member", Type::Text),
    ("with", Type::Text),
    ("force", Type::Flag),
    ("write_mostly", Type::Flag),
    ("re_add", Type::Flag),
    ("bitmap", Type::Text),
    ("bitmap_chunk", Type::Number(u32::MAX as u64)),
    ("write_behind", Type::Number(u32::MAX as u64)),
    ("action", Type::Text),
    ("settings", Type::Object),
];

const SETTINGS: [(&str, Type); 4] = [
    ("sync_speed_min", Type::Number(u64::MAX)),
    ("sync_speed_max", Type::Number(u64::MAX)),
    ("check_window", Type::Text),
    ("stripe_cache_size", Type::Number(u32::MAX as u64)),
];

impl Type {
    fn has(self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Flag => value.is_boolean(),
            Self::Number(most) => value.as_u64().is_some_and(|number| number <= most),
            Self::Object => value.is_object(),
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Flag => "true or false".into(),
            Self::Number(most) => format!("a whole number up to {most}"),
            Self::Object => "an object".into(),
        }
    }
}

/// Names the first field that is of another type than it should be.
fn check_types(fields: &Map<String, Value>, types: &[(&str, Type)]) -> Result<(), String> {
    for (name, wanted) in types {
        if let Some(value) = fields.get(*name).filter(|value| !wanted.has(value)) {
            let wanted = wanted.describe();
            return Err(format!("{name:?} is {value}, not {wanted}; nothing was changed"));
        }
    }
    Ok(())
}

/// What serde says of a field that is missing, or of a word that nobody knows, in other words.
fn misunderstood(error: &str, command: Option<&Value>) -> String {
    let word = error.split('`').nth(1).unwrap_or_default();
    let known = error.split_once(", expected ").map_or("", |(_, known)| known);
    let known = known.trim_start_matches("one of ").replace('`', "");
    let what = match error {
        _ if error.starts_with("missing field") => {
            return format!("no {word:?} in the request; nothing was changed");
        }
        _ if error.starts_with("unknown field") => "setting",
        _ if error.starts_with("unknown variant") => match command.and_then(Value::as_str) {
            Some(command) if command == word => "command",
            _ => "action",
        },
        _ => return format!("{error}; nothing was changed"),
    };
    format!("unknown {what} {word:?}; known are {known}; nothing was changed")
}

/// Carries it out, and waits until it is.
fn carry_out(request: Request, served: &Served) -> Result<Value, String> {
    let handle = &served.handle;
    let answer = match request {
        Request::Detail => {
            let (pid, exports) = (Some(std::process::id()), served.exports.clone());
            let detail = handle.detail().ok_or("the array has stopped")?;
            return Ok(reply(Described { version: VERSION, pid, exports, detail }));
        }
        Request::Stop { force } => return stop(force, served),
        Request::Fail { member, force } => handle.command(Command::Fail { member, force })?,
        Request::Replace { member, with } => handle.command(Command::Replace { member, with })?,
        Request::Remove { member } => handle.command(Command::Remove(member))?,
        Request::Sync { action } => handle.command(Command::Sync(action))?,
        Request::Add { member, force, write_mostly, re_add } => {
            let spec: MemberSpec = member.parse().map_err(|error| format!("{error}"))?;
            not_on_itself(&spec.path, served)?;
            join(handle, &spec, Join { force, write_mostly, re_add })?
        }
        Request::Grow { bitmap: place, bitmap_chunk: chunk, write_behind, force } => {
            if let BitmapPlace::File(path) = &place {
                if !path.is_absolute() {
                    return Err(format!(
                        "\"bitmap\" is {path:?}, neither none nor internal nor lockless nor an absolute path; nothing was \
                         changed"
                    ));
                }
                not_on_itself(path.parent().unwrap_or(path), served)?;
            }
            grow_bitmap(handle, BitmapWish { place, chunk, write_behind }, force)?
        }
        Request::Set { settings: wanted } => handle.command(Command::Set(settings(wanted)?))?,
    };
    Ok(match answer {
        Answer::Member(member) => reply(Failed { member: *member }),
        Answer::Added(member, how) => reply(Added { member: *member, how }),
        Answer::Replacement(member) => reply(Replaced { replacement: member.map(|it| *it) }),
        Answer::Removed(removed) => reply(Removed { removed }),
        Answer::Settings { min, max, window, stripe_cache } => {
            let window = window.map_or(ALWAYS.into(), |window| window.to_string());
            reply(Set {
                settings: Settings {
                    sync_speed_min: Some(min),
                    sync_speed_max: Some(max),
                    check_window: Some(window),
                    stripe_cache_size: Some(stripe_cache),
                },
            })
        }
        Answer::AlreadySo => reply(Grown { changed: false }),
        _ => reply(Begun {}),
    })
}

/// Stops the array, but not against its end, nor under a file system on it.
fn stop(force: bool, served: &Served) -> Result<Value, String> {
    let Deleted { paths, is_end, overlay } = served.handle.deleted();
    let name = || served.handle.detail().map_or("NAME".into(), |detail| quoted(detail.name));
    if !force && let Some(file) = served.file.as_ref().filter(|file| (file.stays_open)()) {
        return Err(format!(
            "{} is open (by a loop device, another array or a program); it serves on, nothing was changed; unmount \
             what lies on it, detach the loop device (`losetup -d`), and stop it then; `lapstrake stop {} --force` \
             takes it from its users, and what they have not written is lost",
            file.path.display(),
            name()
        ));
    }
    if is_end && !force {
        let place = served.exports.first().map_or("URI", String::as_str);
        let name = name();
        return Err(format!(
            "the files of {} were deleted while it is served, and are gone for good once it stops: it could \
             never be started again; it serves on, nothing was changed; copy it off first (`nbdcopy '{place}' \
             FILE`), or, if it has redundancy, `lapstrake add` spares and `lapstrake replace` these members; \
             `lapstrake stop {name} --force` gives its data up",
            paths.join(", ")
        ));
    }
    if let Some(overlay) = overlay.as_ref().filter(|_| !force) {
        let place = served.exports.first().map_or("URI", String::as_str);
        return Err(format!(
            "the overlay's file {overlay} was deleted or spoiled while it is served: all that was written to the \
             array is gone for good once it stops, and the members are as they were; it serves on, nothing was \
             changed; copy off what can still be read (`nbdcopy '{place}' FILE`); `lapstrake stop {} --force` gives \
             it up",
            name()
        ));
    }
    let (sender, receiver) = mpsc::channel();
    (served.stop)(sender);
    let clean = receiver.recv().map_err(|_| "the array is being stopped already")?;
    Ok(reply(Stopped { clean, deleted: paths, is_end, overlay_lost: overlay }))
}

/// What lies on the array itself would wait for itself, and so for ever.
fn not_on_itself(path: &Path, served: &Served) -> Result<(), String> {
    match &served.file {
        Some(file) if lies_on(path, &file.path) => Err(format!(
            "{}: lies on this array itself (by {}); nothing was written; take one that does not",
            path.display(),
            file.path.display()
        )),
        _ => Ok(()),
    }
}

/// With the part of the day that its text stands for.
fn settings(wanted: Settings) -> Result<message::Settings, String> {
    let window = |text: String| (text != ALWAYS).then(|| text.parse()).transpose();
    let window = wanted.check_window.map(window).transpose();
    Ok(message::Settings {
        min: wanted.sync_speed_min,
        max: wanted.sync_speed_max,
        window: window.map_err(|why| format!("check_window: {why}; nothing was changed"))?,
        stripe_cache: wanted.stripe_cache_size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_request_is_named() {
        for (request, told) in [
            ("nonsense", "not JSON: "),
            ("[1]", "no \"command\" in the request"),
            (r#"{"command":null}"#, "no \"command\" in the request"),
            (r#"{"command":7}"#, "\"command\" is 7, not a text"),
            (r#"{"command":{"sync":1}}"#, "\"command\" is {\"sync\":1}, not a text"),
            (
                r#"{"command":"dance","member":"0"}"#,
                "unknown command \"dance\"; known are detail, stop, add, ",
            ),
            (
                r#"{"command":"sync","action":"dance"}"#,
                "unknown action \"dance\"; known are check, repair, ",
            ),
            (
                r#"{"command":"sync","action":{"check":null}}"#,
                "\"action\" is {\"check\":null}, not a text",
            ),
            (r#"{"command":"fail","force":true}"#, "no \"member\" in the request"),
            (
                r#"{"command":"add","force":1,"member":"2","re_add":1}"#,
                "\"force\" is 1, not true or false",
            ),
            (r#"{"command":"fail","member":0}"#, "\"member\" is 0, not a text"),
            (r#"{"command":"grow","bitmap":7}"#, "\"bitmap\" is 7, not a text"),
            (
                r#"{"command":"grow","bitmap":"internal","bitmap_chunk":4294967296}"#,
                "\"bitmap_chunk\" is 4294967296, not a whole number up to 4294967295",
            ),
            (r#"{"command":"set","settings":[]}"#, "\"settings\" is [], not an object"),
            (
                r#"{"command":"set","settings":{"dance":1}}"#,
                "unknown setting \"dance\"; known are sync_speed_min, ",
            ),
            (
                r#"{"command":"set","settings":{"sync_speed_min":1,"sync_speed_max":"x"}}"#,
                "\"sync_speed_max\" is \"x\", not a whole number up to ",
            ),
            (
                r#"{"command":"set","settings":{"stripe_cache_size":-1}}"#,
                "\"stripe_cache_size\" is -1, not a whole number up to 4294967295",
            ),
            (
                r#"{"command":"set","settings":{"check_window":7}}"#,
                "\"check_window\" is 7, not a text",
            ),
            (
                r#"{"command":"stop","version":2}"#,
                "the request needs version 2 of the control protocol",
            ),
            (r#"{"command":"stop","version":"2"}"#, "\"version\" is \"2\", not a whole number"),
            (r#"{"command":"stop","version":2.5}"#, "\"version\" is 2.5, not a whole number"),
        ] {
            let why = read(request.as_bytes()).unwrap_err();
            assert!(
                why.starts_with(told) && why.ends_with("nothing was changed"),
                "{request}: {why}"
            );
        }
        let read = |line: &str| read(line.as_bytes());
        assert_eq!(read(r#"{"command":"stop","force":null}"#), Ok(Request::Stop { force: false }));
        assert_eq!(read(r#"{"command":"detail","version":1,"later":[]}"#), Ok(Request::Detail));
    }
}
