//! What is said on the control socket of a served array: a [`Request`] to a line, and a [`Reply`] with what the request's
//! doc names (`docs/control.md`; as a JSON Schema `docs/control.schema.json`).
//!
//! Who reads an answer passes over fields that it does not know, gives fields that came after the first version, and are
//! missing, their defaults, and keeps unknown words as `Other`. Who reads a request passes over unknown fields too, but
//! refuses unknown words, and what is of a later version than it speaks. Fields are added in minor versions: take values
//! apart with `..`.
//!
//! Here are values only: sockets are in `lapstrake-host`, and clients use `lapstrake`.

mod detail;
pub mod percent;
mod plan;
mod words;

pub use detail::{
    Detail, LastSyncDetail, MemberDetail, MemberWork, MemoryDetail, Mismatch, PartDetail,
    ReshapeDetail, SyncDetail, TuningDetail, WorkDetail,
};
pub use plan::{MemberTraffic, PlannedMove, PlannedStep};
pub use words::{
    ArrayState, BitmapFate, BitmapLocation, ConsistencyPolicy, HowAdded, MemberState, StepAction,
    SyncAction, SyncRequest, SyncResult,
};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// The version of the protocol. It counts up when a request gets something that a server of before must not pass over.
/// Answers only gain fields and words.
pub const VERSION: u32 = 1;
/// The word that stands for all members that are faulty.
pub const FAILED: &str = "failed";
/// The word for a check window that never closes.
pub const ALWAYS: &str = "always";

/// What an array is asked. A member is called by any of its names or, in digits, by its number in the superblocks.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Request {
    /// To tell everything about itself: [`Described`].
    Detail,
    /// To stop: [`Stopped`].
    Stop {
        /// Also where something is lost with it.
        #[serde(default)]
        force: bool,
    },
    /// To take in a member: [`Added`].
    Add {
        /// As for `lapstrake serve`, with an absolute path.
        member: String,
        /// Over whatever it holds.
        #[serde(default)]
        force: bool,
        /// Read it only where no other member has the data.
        #[serde(default)]
        write_mostly: bool,
        /// Only as what it was.
        #[serde(default)]
        re_add: bool,
    },
    /// To use a member no more: [`Failed`].
    Fail {
        /// Which.
        member: String,
        /// Also where others need it.
        #[serde(default)]
        force: bool,
    },
    /// To have a member's place taken by a spare: [`Replaced`].
    Replace {
        /// Which.
        member: String,
        /// The spare; any if none is named.
        #[serde(default)]
        with: Option<String>,
    },
    /// To let go of a member that is faulty or spare: [`Removed`].
    Remove {
        /// Which, or `failed` for all that are faulty.
        member: String,
    },
    /// To have another write-intent bitmap, or none: [`Grown`].
    Grow {
        /// Where.
        bitmap: BitmapPlace,
        /// Bytes to a bit; as it is, or as mdadm chooses, if nothing is said.
        #[serde(default)]
        bitmap_chunk: Option<u32>,
        /// Writes that write-mostly members may lag behind; as it is if nothing is said.
        #[serde(default)]
        write_behind: Option<u32>,
        /// Over a file that is there.
        #[serde(default)]
        force: bool,
    },
    /// To have another size, or number of copies, for which no block moves: [`Grown`]. One of them at a time.
    Resize {
        /// What is used of each member.
        #[serde(default)]
        size: Option<WantedSize>,
        /// What clients can use, until the array stops.
        #[serde(default)]
        array_size: Option<WantedSize>,
        /// Slots.
        #[serde(default)]
        raid_devices: Option<u16>,
        /// What comes to it needs no resync.
        #[serde(default)]
        assume_clean: bool,
    },
    /// To have another geometry, for which data is moved while the array is served: [`Grown`], when that has begun.
    Reshape {
        /// Slots.
        #[serde(default)]
        raid_devices: Option<u16>,
        /// The level, such as `raid6`.
        #[serde(default)]
        level: Option<String>,
        /// Bytes of a chunk.
        #[serde(default)]
        chunk_bytes: Option<u64>,
        /// The layout, such as `left-symmetric`.
        #[serde(default)]
        layout: Option<String>,
    },
    /// To tell what a `resize` or `reshape` would take, and do nothing: [`Planned`].
    Plan {
        /// The other request.
        request: Box<Request>,
        /// Devices that would be added for it, as `add` takes them.
        #[serde(default)]
        members: Vec<String>,
        /// Whatever these hold.
        #[serde(default)]
        force: bool,
    },
    /// To begin, end or hold a sync action: [`Begun`].
    Sync {
        /// Which.
        action: SyncRequest,
    },
    /// To change settings until it stops: [`Set`].
    Set {
        /// Those that change.
        settings: Settings,
    },
}

/// A size that an array is to have.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WantedSize {
    /// As large as can be.
    Max,
    /// So many bytes.
    #[serde(untagged)]
    Bytes(u64),
}

/// Where an array is to have its write-intent bitmap.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum BitmapPlace {
    /// Nowhere.
    None,
    /// Beside each superblock.
    Internal,
    /// Beside each superblock, with a byte to a chunk.
    Lockless,
    /// In a file of its own, by its absolute path.
    #[serde(untagged)]
    File(PathBuf),
}

impl fmt::Display for BitmapPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Internal => f.write_str("internal"),
            Self::Lockless => f.write_str("lockless"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What can be changed while an array is served: in a request those that are to change, in an answer all.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The least speed of recovery and resync beside clients' requests, KiB a second of a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_speed_min: Option<u64>,
    /// The greatest at all times; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_speed_max: Option<u64>,
    /// The part of the local day in which checks and repairs go on, as `22:00-06:00`, or `always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_window: Option<String>,
    /// Pages of 4 KiB of the stripe cache for each member, in each shard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_cache_size: Option<u32>,
}

/// A server's line: whether it did what it was asked, and the answer to that, or a [`Refused`].
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "{A}Reply"))]
pub struct Reply<A> {
    /// False of a refusal only.
    pub ok: bool,
    /// What the request asks for.
    #[serde(flatten)]
    pub answer: A,
}

/// Answers to requests.
macro_rules! answers {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
    )*};
}

answers! {
    /// Nothing was changed, unless it says so.
    Refused {
        /// Why, and what to do.
        error: String,
    }

    /// To [`Request::Detail`].
    Described {
        /// Of the protocol: that which the server speaks.
        #[serde(default = "first")]
        version: u32,
        /// The server's process.
        #[serde(default)]
        pid: Option<u32>,
        /// Where clients find the array: URIs.
        #[serde(default)]
        exports: Vec<String>,
        /// The array.
        detail: Detail,
    }

    /// To [`Request::Stop`], when all that it needs is free again.
    Stopped {
        /// Whether the superblocks say so.
        clean: bool,
        /// Members, not faulty, whose files were deleted before, and are gone.
        #[serde(default)]
        deleted: Vec<String>,
        /// Without them the array cannot be started.
        #[serde(default)]
        is_end: bool,
        /// The overlay's file if it was deleted or spoiled: what was written is gone.
        #[serde(default)]
        overlay_lost: Option<String>,
    }

    /// To [`Request::Add`].
    Added {
        /// As it is now.
        member: MemberDetail,
        /// As what.
        how: HowAdded,
    }

    /// To [`Request::Fail`].
    Failed {
        /// As it is now.
        member: MemberDetail,
    }

    /// To [`Request::Replace`].
    Replaced {
        /// Who takes the place; none while there is no spare.
        replacement: Option<MemberDetail>,
    }

    /// To [`Request::Remove`], when they are closed.
    Removed {
        /// By their paths.
        removed: Vec<String>,
    }

    /// To [`Request::Grow`] and [`Request::Resize`], when it is on record, and clients can use it; to [`Request::Reshape`]
    /// when it has begun.
    Grown {
        /// False if it was so before; else not said.
        #[serde(default = "yes", skip_serializing_if = "is_so")]
        changed: bool,
    }

    /// To [`Request::Plan`]. Nothing was changed.
    Planned {
        /// One after the other; none if the array is so already.
        steps: Vec<PlannedStep>,
        /// Why it would not go on after these steps, if it would not.
        #[serde(default)]
        obstacle: Option<String>,
        /// As the array is now, a member that fails may take data with it.
        #[serde(default)]
        without_redundancy: bool,
    }

    /// To [`Request::Sync`], when [`Request::Detail`] shows it.
    Begun {}

    /// To [`Request::Set`].
    Set {
        /// All, as they are now.
        settings: Settings,
    }
}

/// What a server speaks that does not say.
fn first() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn is_so(flag: &bool) -> bool {
    *flag
}

impl From<Described> for Detail {
    fn from(described: Described) -> Self {
        let Described { pid, exports, detail, .. } = described;
        Self { pid, exports, ..detail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// A line of the control protocol of an array that Lapstrake serves, in version 1: a request, or a server's reply.
    /// `docs/control.md` says who says what when.
    #[derive(schemars::JsonSchema)]
    #[schemars(rename = "ControlProtocol")]
    #[serde(untagged)]
    #[expect(dead_code, reason = "for the schema only")]
    enum Line {
        Request(Request),
        Refused(Reply<Refused>),
        Described(Box<Reply<Described>>),
        Stopped(Reply<Stopped>),
        Added(Box<Reply<Added>>),
        Failed(Box<Reply<Failed>>),
        Replaced(Box<Reply<Replaced>>),
        Removed(Reply<Removed>),
        Grown(Reply<Grown>),
        Planned(Box<Reply<Planned>>),
        Begun(Reply<Begun>),
        Set(Reply<Set>),
    }

    /// `cargo xtask schema` writes it.
    #[test]
    fn the_schema_in_docs_is_of_these_types() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control.schema.json");
        let schema = serde_json::to_string_pretty(&schemars::schema_for!(Line)).unwrap() + "\n";
        // Links are rustdoc's.
        let schema = schema.replace("[`", "`").replace("`]", "`");
        if std::env::var_os("LAPSTRAKE_WRITE_SCHEMA").is_some() {
            std::fs::write(&path, &schema).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == schema, "{} is out of date: `cargo xtask schema`", path.display());
        assert!(schema.contains("in version 1:") && VERSION == 1, "the version in its head");
    }

    #[test]
    fn requests_are_read_with_what_may_be_left_out() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        let fail = Request::Fail { member: "0".into(), force: false };
        let line = r#"{"command":"fail","member":"0","since":"a later version"}"#;
        assert_eq!(read(line).unwrap(), fail);
        assert_eq!(
            serde_json::to_string(&fail).unwrap(),
            r#"{"command":"fail","member":"0","force":false}"#
        );
        for (word, place) in [
            ("none", BitmapPlace::None),
            ("lockless", BitmapPlace::Lockless),
            ("/b", BitmapPlace::File("/b".into())),
        ] {
            let (bitmap_chunk, write_behind) = (None, None);
            let grow = Request::Grow { bitmap: place, bitmap_chunk, write_behind, force: false };
            let line = format!(r#"{{"command":"grow","bitmap":"{word}"}}"#);
            assert_eq!(read(&line).unwrap(), grow);
        }
        for unknown in [
            r#"{"command":"dance"}"#,
            r#"{"command":"sync","action":"dance"}"#,
            r#"{"command":"set","settings":{"dance":1}}"#,
        ] {
            assert!(read(unknown).unwrap_err().to_string().starts_with("unknown "), "{unknown}");
        }
    }

    #[test]
    fn words_of_later_versions_are_kept() {
        let state: MemberState = serde_json::from_str("\"asleep\"").unwrap();
        assert_eq!(state, MemberState::Other("asleep".into()));
        assert_eq!(serde_json::to_string(&state).unwrap(), "\"asleep\"");
        let state: MemberState = serde_json::from_str("\"in_sync\"").unwrap();
        assert_eq!((&state, state.as_str()), (&MemberState::InSync, "in_sync"));
    }

    #[test]
    fn what_a_reply_says_is_beside_ok() {
        let told = |changed| {
            serde_json::to_string(&Reply { ok: true, answer: Grown { changed } }).unwrap()
        };
        assert_eq!(told(true), r#"{"ok":true}"#);
        assert_eq!(told(false), r#"{"ok":true,"changed":false}"#);
        assert!(serde_json::from_str::<Grown>(r#"{"ok":true}"#).unwrap().changed);
    }
}
