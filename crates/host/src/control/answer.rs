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
use std::iter;
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
    let value = serde_json::from_slice(line).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(mut fields) = value else {
        return Err("no \"command\" in the request".into());
    };
    // What may be left out may be null.
    fields.retain(|_, value| !value.is_null());
    let version = fields.get("version").and_then(Value::as_u64).unwrap_or_default();
    if version > u64::from(VERSION) {
        return Err(format!(
            "the request needs version {version} of the control protocol, and this server speaks {VERSION}; nothing \
             was changed"
        ));
    }
    request(fields.clone()).map_err(|error| blame(&fields, &error))
}

fn request(fields: Map<String, Value>) -> Result<Request, String> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| error.to_string())
}

/// Names the field that an error of serde's is about.
fn blame(fields: &Map<String, Value>, error: &str) -> String {
    if let Some(missing) = error.strip_prefix("missing field ") {
        let missing = missing.trim_matches('`');
        return format!("no {missing:?} in the request; nothing was changed");
    }
    // That with which alone the request is wrong in the same way.
    let is_wrong = |key: &&str| {
        let of = |(name, _): &(&String, &Value)| *name == "command" || name == key;
        let pair = |(name, value): (&String, &Value)| (name.clone(), value.clone());
        request(fields.iter().filter(of).map(pair).collect()).is_err_and(|other| other == error)
    };
    let mut keys = iter::once("command").chain(fields.keys().map(String::as_str));
    let key = keys.find(is_wrong).unwrap_or("command");
    let value = &fields[key];
    let (what, expected) = error.split_once(", expected ").unwrap_or((error, "what is known"));
    let expected = match expected {
        "a boolean" => "true or false",
        "a string" => "a text",
        "u32" => "a number below 2^32",
        "u64" => "a number below 2^64",
        other => other,
    };
    match (what.split_once(": "), value) {
        (Some((_, part)), Value::Object(_)) => {
            format!("{key:?} is {value}: {part} is not {expected}; nothing was changed")
        }
        (Some(_), _) => format!("{key:?} is {value}, not {expected}; nothing was changed"),
        (None, _) => format!("unknown {key} {value}, expected {expected}; nothing was changed"),
    }
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
                        "\"bitmap\" is {path:?}, neither internal nor none nor an absolute path; nothing was changed"
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
            ("{\"command\":null}", "no \"command\" in the request"),
            (
                r#"{"command":"dance","member":"0"}"#,
                "unknown command \"dance\", expected one of `detail`, ",
            ),
            (
                r#"{"command":"sync","action":"dance"}"#,
                "unknown action \"dance\", expected one of `check`, ",
            ),
            (r#"{"command":"fail","force":true}"#, "no \"member\" in the request"),
            (
                r#"{"command":"add","force":1,"member":2,"re_add":1}"#,
                "\"force\" is 1, not true or false",
            ),
            (r#"{"command":"fail","member":0}"#, "\"member\" is 0, not a text"),
            (
                r#"{"command":"grow","bitmap":"internal","bitmap_chunk":4294967296}"#,
                "\"bitmap_chunk\" is 4294967296, not a number below 2^32",
            ),
            (
                r#"{"command":"set","settings":{"dance":1}}"#,
                "unknown settings {\"dance\":1}, expected one of `sync_speed_min`, ",
            ),
            (
                r#"{"command":"set","settings":{"sync_speed_min":"fast"}}"#,
                "\"settings\" is {\"sync_speed_min\":\"fast\"}: string \"fast\" is not a number below 2^64",
            ),
            (
                r#"{"command":"stop","version":2}"#,
                "the request needs version 2 of the control protocol",
            ),
        ] {
            let why = read(request.as_bytes()).unwrap_err();
            assert!(why.starts_with(told), "{request}: {why}");
        }
        let read = |line: &str| read(line.as_bytes());
        assert_eq!(read(r#"{"command":"stop","force":null}"#), Ok(Request::Stop { force: false }));
        assert_eq!(read(r#"{"command":"detail","version":1,"later":[]}"#), Ok(Request::Detail));
    }
}
