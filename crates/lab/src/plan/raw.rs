//! A plan as it stands in its file: every key that there is, each value with its place.

use super::values::{Bytes, LevelName, Many, Members, Metadata, Place, Share, Time};
use super::{BonnieVersion, Filesystem, Order, Over, Prepare};
use crate::record::SubjectKind;
use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawPlan {
    pub name: String,
    #[serde(default)]
    pub about: String,
    #[serde(default)]
    pub run: RawRules,
    #[serde(default)]
    pub machine: RawMachine,
    #[serde(default)]
    pub care: RawCare,
    #[serde(default)]
    pub channel: Vec<Spanned<RawChannel>>,
    #[serde(default)]
    pub controller: Vec<Spanned<RawController>>,
    #[serde(default)]
    pub disk: Vec<Spanned<RawDisk>>,
    #[serde(default)]
    pub array: Vec<Spanned<RawArray>>,
    #[serde(default)]
    pub workload: Vec<Spanned<RawWorkload>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawRules {
    pub repeats: Option<Spanned<u32>>,
    pub repeats_max: Option<Spanned<u32>>,
    pub interval: Option<Share>,
    pub warm_up: Option<Time>,
    pub time: Option<Spanned<Time>>,
    pub budget: Option<Time>,
    pub order: Option<Order>,
    pub prepare: Option<Prepare>,
    pub seed: Option<u64>,
    pub directory: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawMachine {
    pub processor: Option<Spanned<String>>,
    pub memory: Option<Spanned<Bytes>>,
    pub low_memory: Option<Spanned<Bytes>>,
    pub linux: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawCare {
    pub years: Option<Spanned<f64>>,
    pub replace: Option<Time>,
    pub scrub: Option<Spanned<Time>>,
    pub spares: Option<Spanned<usize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawChannel {
    pub name: Spanned<String>,
    pub rate: Spanned<Bytes>,
    #[serde(default)]
    pub holds: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawController {
    pub name: Spanned<String>,
    pub cache: Spanned<Bytes>,
    pub rate: Option<Spanned<Bytes>>,
    pub overhead: Option<Time>,
    pub run: Option<Spanned<Bytes>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawDisk {
    pub name: Option<Spanned<String>>,
    pub path: Option<Spanned<String>>,
    #[serde(default)]
    pub expendable: bool,
    pub make: Option<Spanned<Many<String>>>,
    pub size: Option<Spanned<Bytes>>,
    pub size_predicted: Option<Spanned<Place>>,
    pub profile: Option<Spanned<String>>,
    pub channel: Option<Spanned<String>>,
    pub controller: Option<Spanned<String>>,
    pub drive: Option<Spanned<String>>,
    pub at: Option<Spanned<Place>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawArray {
    pub name: Option<Spanned<String>>,
    pub system: Option<Spanned<Many<SubjectKind>>>,
    pub level: Option<Spanned<Many<LevelName>>>,
    pub members: Option<Spanned<Members>>,
    pub layout: Option<Spanned<Many<String>>>,
    pub chunk: Option<Spanned<Many<Bytes>>>,
    pub metadata: Option<Many<Metadata>>,
    pub bitmap: Option<Spanned<Many<String>>>,
    pub bitmap_chunk: Option<Many<Bytes>>,
    pub stripe_cache: Option<Spanned<Many<u32>>>,
    pub read_ahead: Option<Many<Bytes>>,
    pub over: Option<Many<Over>>,
    pub filesystem: Option<Many<Filesystem>>,
    pub stride: Option<Many<bool>>,
    pub mount_options: Option<String>,
    pub sync_speed_min: Option<Bytes>,
    pub sync_speed_max: Option<Bytes>,
    pub states: Option<Spanned<Many<RawState>>>,
    pub path: Option<Spanned<String>>,
    #[serde(default)]
    pub expendable: bool,
    pub measure: Option<bool>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum RawState {
    Healthy,
    /// Without these; empty: without the last.
    Missing(Vec<String>),
    Rebuilding(Option<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StateTable {
    missing: Option<Many<String>>,
    rebuilding: Option<String>,
}

impl<'de> Deserialize<'de> for RawState {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
        const STATES: &str = "\"healthy\", \"degraded\", \"rebuilding\", { missing = \"NAME\" } or { rebuilding = \"NAME\" }";
        struct AnyState;
        impl<'de> Visitor<'de> for AnyState {
            type Value = RawState;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(STATES)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RawState, E> {
                match text {
                    "healthy" => Ok(RawState::Healthy),
                    "degraded" => Ok(RawState::Missing(Vec::new())),
                    "rebuilding" => Ok(RawState::Rebuilding(None)),
                    _ => Err(E::custom(format!("{text:?} is no state: say {STATES}"))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawState, A::Error> {
                let table = StateTable::deserialize(MapAccessDeserializer::new(map))?;
                match (table.missing, table.rebuilding) {
                    (Some(Many(names)), None) => Ok(RawState::Missing(names)),
                    (None, Some(name)) => Ok(RawState::Rebuilding(Some(name))),
                    _ => Err(A::Error::custom(format!("a state is one of {STATES}"))),
                }
            }
        }
        deserializer.deserialize_any(AnyState)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawWorkload {
    pub name: Spanned<String>,
    pub warm_up: Option<Time>,
    pub time: Option<Spanned<Time>>,

    // The lab's own requests.
    pub pattern: Option<Spanned<PatternName>>,
    pub theta: Option<Spanned<f64>>,
    pub stride: Option<Spanned<Bytes>>,
    pub streams: Option<Spanned<u32>>,
    pub zones: Option<Spanned<u32>>,
    pub read: Option<Many<Share>>,
    pub block: Option<Spanned<Many<Bytes>>>,
    pub depth: Option<Spanned<Many<u32>>>,
    pub threads: Option<Spanned<Many<u32>>>,
    pub from: Option<Place>,
    pub to: Option<Spanned<Place>>,
    pub file_size: Option<Bytes>,
    pub direct: Option<bool>,
    pub think: Option<Time>,
    pub rate: Option<Spanned<Bytes>>,
    pub fsync_every: Option<Spanned<u32>>,
    pub fsync_end: Option<bool>,
    pub verify: Option<bool>,
    pub amount: Option<Spanned<Bytes>>,

    // What another tool does.
    pub like: Option<Spanned<LikeName>>,
    pub version: Option<BonnieVersion>,
    pub size: Option<Bytes>,
    pub size_predicted: Option<Bytes>,
    pub chunk: Option<Spanned<Bytes>>,
    pub files: Option<u64>,
    pub sync: Option<bool>,
    pub times: Option<Spanned<u32>>,
    pub fast: Option<bool>,
    pub tests: Option<Spanned<Many<u8>>>,
    pub record: Option<Spanned<Bytes>>,
    pub flush: Option<bool>,

    // A program of others.
    pub program: Option<Spanned<ProgramName>>,
    pub job: Option<Spanned<String>>,
    pub job_file: Option<Spanned<String>>,
    pub arguments: Option<Spanned<Vec<String>>>,
    pub scale: Option<Spanned<u32>>,
    pub clients: Option<Spanned<u32>>,
    pub jobs: Option<Spanned<u32>>,
    pub mode: Option<Spanned<String>>,
    pub configuration: Option<String>,
    pub transaction_cpu: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PatternName {
    Sequential,
    Uniform,
    Zipf,
    Strided,
    Streams,
    Zones,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum LikeName {
    #[serde(rename = "bonnie++")]
    Bonnie,
    #[serde(rename = "iozone")]
    Iozone,
    #[serde(rename = "hdparm")]
    Hdparm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum ProgramName {
    #[serde(rename = "fio")]
    Fio,
    #[serde(rename = "bonnie++")]
    Bonnie,
    #[serde(rename = "hdparm")]
    Hdparm,
    #[serde(rename = "pgbench")]
    Pgbench,
}
