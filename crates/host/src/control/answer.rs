//! What a served array answers to a line: reads the request, has it carried out, and says what came of it.

use super::Served;
use super::refusal::{RefusedRequest, Type, UnreadableRequest, Word};
use crate::command_error::CommandError;
use crate::grow::grow_bitmap;
use crate::join::{Join, join, look_at};
use crate::message::{
    self, Answer, BitmapWish, Candidate, Command, Deleted, ReshapeWish, ResizeWish,
};
use crate::window::CheckWindowError;
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
    let request = read(line).map_err(RefusedRequest::from);
    let answer = request.and_then(|request| carry_out(request, served));
    answer.unwrap_or_else(|error| refusal(&error))
}

pub(super) fn refusal(error: &RefusedRequest) -> Value {
    line(&Reply { ok: false, answer: Refused { error: error.to_string() } })
}

fn reply(answer: impl Serialize) -> Value {
    line(&Reply { ok: true, answer })
}

fn line(reply: &Reply<impl Serialize>) -> Value {
    serde_json::to_value(reply).expect("its paths are UTF-8, and its maps have names for keys")
}

fn read(line: &[u8]) -> Result<Request, UnreadableRequest> {
    let value = serde_json::from_slice(line).map_err(UnreadableRequest::NotJson)?;
    let Value::Object(mut fields) = value else { return Err(UnreadableRequest::NoObject) };
    // What may be left out may be null.
    fields.retain(|_, value| !value.is_null());
    check_types(&fields, &FIELDS)?;
    let found = fields.get("version").and_then(Value::as_u64).unwrap_or_default();
    if found > u64::from(VERSION) {
        return Err(UnreadableRequest::Version { found });
    }
    if let Some(Value::Object(settings)) = fields.get_mut("settings") {
        settings.retain(|_, value| !value.is_null());
        check_types(settings, &SETTINGS)?;
    }
    if let Some(Value::Object(planned)) = fields.get_mut("request") {
        planned.retain(|_, value| !value.is_null());
        check_types(planned, &FIELDS)?;
    }
    let command = fields.get("command").cloned();
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| misunderstood(error, command.as_ref()))
}

/// Fields of requests. Others are passed over.
const FIELDS: [(&str, Type); 15] = [
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
    ("raid_devices", Type::Number(u16::MAX as u64)),
    ("assume_clean", Type::Flag),
    ("settings", Type::Object),
    ("request", Type::Object),
];

const SETTINGS: [(&str, Type); 4] = [
    ("sync_speed_min", Type::Number(u64::MAX)),
    ("sync_speed_max", Type::Number(u64::MAX)),
    ("check_window", Type::Text),
    ("stripe_cache_size", Type::Number(u32::MAX as u64)),
];

/// Names the first field that is of another type than it should be.
fn check_types(
    fields: &Map<String, Value>,
    types: &[(&'static str, Type)],
) -> Result<(), UnreadableRequest> {
    for &(field, wanted) in types {
        if let Some(value) = fields.get(field).filter(|value| !wanted.has(value)) {
            return Err(UnreadableRequest::Type { field, found: value.clone(), wanted });
        }
    }
    Ok(())
}

/// What serde says of a field that is missing, or of a word that nobody knows, in other words.
fn misunderstood(error: serde_json::Error, command: Option<&Value>) -> UnreadableRequest {
    let text = error.to_string();
    let word = text.split('`').nth(1).unwrap_or_default().to_owned();
    let what = match &*text {
        text if text.starts_with("missing field") => {
            return UnreadableRequest::Missing { field: word };
        }
        text if text.starts_with("unknown field") => Word::Setting,
        text if text.starts_with("unknown variant") => match command.and_then(Value::as_str) {
            Some(command) if command == word => Word::Command,
            _ => Word::Action,
        },
        _ => return UnreadableRequest::Other(error),
    };
    let known = text.split_once(", expected ").map_or("", |(_, known)| known);
    let known = known.trim_start_matches("one of ").replace('`', "");
    UnreadableRequest::Unknown { what, word, known }
}

/// Carries it out, and waits until it is.
fn carry_out(request: Request, served: &Served) -> Result<Value, RefusedRequest> {
    let handle = &served.handle;
    let answer = match request {
        Request::Detail => {
            let (pid, exports) = (Some(std::process::id()), served.exports.clone());
            let detail = handle.detail().ok_or(CommandError::Stopped)?;
            return Ok(reply(Described { version: VERSION, pid, exports, detail }));
        }
        Request::Stop { force } => return stop(force, served),
        Request::Fail { member, force } => handle.command(Command::Fail { member, force })?,
        Request::Replace { member, with } => handle.command(Command::Replace { member, with })?,
        Request::Remove { member } => handle.command(Command::Remove(member))?,
        Request::Sync { action } => handle.command(Command::Sync(action))?,
        Request::Add { member, force, write_mostly, re_add } => {
            let spec: MemberSpec = member.parse()?;
            not_on_itself(&spec.path, served)?;
            join(handle, &spec, Join { force, write_mostly, re_add }).map_err(Box::new)?
        }
        Request::Grow { bitmap: place, bitmap_chunk: chunk, write_behind, force } => {
            if let BitmapPlace::File(path) = &place {
                if !path.is_absolute() {
                    return Err(RefusedRequest::BitmapPath { path: path.clone() });
                }
                not_on_itself(path.parent().unwrap_or(path), served)?;
            }
            grow_bitmap(handle, BitmapWish { place, chunk, write_behind }, force)?
        }
        request @ (Request::Resize { .. } | Request::Reshape { .. }) => {
            handle.command(Command::Resize(resize_wish(request)?))?
        }
        Request::Plan { request, members, force } => {
            let wish = resize_wish(*request)?;
            let candidate = |member: &String| -> Result<Candidate, RefusedRequest> {
                let spec: MemberSpec = member.parse()?;
                not_on_itself(&spec.path, served)?;
                Ok(look_at(handle, &spec, force).map_err(Box::new)?)
            };
            let candidates: Result<Vec<_>, _> = members.iter().map(candidate).collect();
            handle.command(Command::PlanResize(wish, candidates?))?
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
        Answer::Planned(planned) => reply(*planned),
        Answer::AlreadySo => reply(Grown { changed: false }),
        _ => reply(Begun {}),
    })
}

/// What a request for another size or geometry asks for.
fn resize_wish(request: Request) -> Result<ResizeWish, UnreadableRequest> {
    Ok(match request {
        Request::Resize { size, array_size, raid_devices, assume_clean } => {
            match (size, array_size, raid_devices) {
                (Some(size), None, None) => ResizeWish::Component { size, assume_clean },
                (None, Some(size), None) => ResizeWish::Usable(size),
                (None, None, Some(copies)) => ResizeWish::Copies(copies),
                _ => return Err(UnreadableRequest::NoSingleResize),
            }
        }
        Request::Reshape { raid_devices, level, chunk_bytes: chunk, layout } => {
            let level =
                level.map(|name| name.parse()).transpose().map_err(UnreadableRequest::Level)?;
            ResizeWish::Reshape(ReshapeWish { raid_devices, level, chunk, layout })
        }
        _ => return Err(UnreadableRequest::NotPlanned),
    })
}

/// Stops the array, but not against its end, nor under a file system on it.
fn stop(force: bool, served: &Served) -> Result<Value, RefusedRequest> {
    let Deleted { paths, is_end, overlay } = served.handle.deleted();
    let name = || served.handle.detail().map_or("NAME".into(), |detail| quoted(detail.name));
    if !force && let Some(file) = served.files.iter().find(|file| (file.stays_open)()) {
        return Err(RefusedRequest::IsOpen { file: file.path.clone(), array: name() });
    }
    let export = || served.exports.first().map_or("URI".into(), String::clone);
    if is_end && !force {
        let (export, array) = (export(), name());
        return Err(RefusedRequest::MembersDeleted { members: paths, export, array });
    }
    if let Some(overlay) = overlay.clone().filter(|_| !force) {
        return Err(RefusedRequest::OverlayLost { overlay, export: export(), array: name() });
    }
    let (sender, receiver) = mpsc::channel();
    (served.stop)(sender);
    let clean = receiver.recv().map_err(|_| RefusedRequest::IsStopping)?;
    Ok(reply(Stopped { clean, deleted: paths, is_end, overlay_lost: overlay }))
}

/// What lies on the array itself would wait for itself, and so for ever.
fn not_on_itself(path: &Path, served: &Served) -> Result<(), RefusedRequest> {
    match served.files.iter().find(|file| lies_on(path, &file.path)) {
        Some(file) => Err(RefusedRequest::OnItself { path: path.into(), file: file.path.clone() }),
        None => Ok(()),
    }
}

/// With the part of the day that its text stands for.
fn settings(wanted: Settings) -> Result<message::Settings, CheckWindowError> {
    let window = |text: String| (text != ALWAYS).then(|| text.parse()).transpose();
    let window = wanted.check_window.map(window).transpose();
    Ok(message::Settings {
        min: wanted.sync_speed_min,
        max: wanted.sync_speed_max,
        window: window?,
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
            (r#"{"command":"plan","request":7}"#, "\"request\" is 7, not an object"),
            (
                r#"{"command":"plan","request":{"command":"reshape","raid_devices":"four"}}"#,
                "\"raid_devices\" is \"four\", not a whole number",
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
            let why = read(request.as_bytes()).unwrap_err().to_string();
            assert!(
                why.starts_with(told) && why.ends_with("nothing was changed"),
                "{request}: {why}"
            );
        }
        let read = |line: &str| read(line.as_bytes()).unwrap();
        assert_eq!(read(r#"{"command":"stop","force":null}"#), Request::Stop { force: false });
        assert_eq!(read(r#"{"command":"detail","version":1,"later":[]}"#), Request::Detail);
        let settings = Settings { sync_speed_min: Some(7), ..Settings::default() };
        assert_eq!(
            read(r#"{"command":"set","settings":{"check_window":null,"sync_speed_min":7}}"#),
            Request::Set { settings }
        );
    }
}
