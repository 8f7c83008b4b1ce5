//! Loads of one name that are not the same.

use crate::record::{Params, Workload};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Options that make no other load: where it ran, what it was called, when it began, what was written down of it.
const NO_LOAD: [&str; 16] = [
    "description",
    "directory",
    "filename",
    "group_reporting",
    "log_avg_msec",
    "name",
    "new_group",
    "randseed",
    "startdelay",
    "stonewall",
    "unified_rw_reporting",
    "wait_for",
    "write_bw_log",
    "write_hist_log",
    "write_iops_log",
    "write_lat_log",
];
/// fio's options that are here under a name of ours too.
const DOUBLE: [(&str, &str); 3] =
    [("iodepth", "queue_depth"), ("numjobs", "threads"), ("bs", "block_size")];

/// Puts to the names of different loads what tells them apart, such as "seq (block_size=65536)".
pub(super) fn tell_apart<'a>(loads: impl Iterator<Item = &'a mut Workload>) {
    let mut named: BTreeMap<String, Vec<&mut Workload>> = BTreeMap::new();
    for load in loads {
        named.entry(load.name.clone()).or_default().push(load);
    }
    for loads in named.into_values() {
        let differs = |key: &&String| {
            loads.iter().any(|load| load.params.get(*key) != loads[0].params.get(*key))
        };
        let keys: BTreeSet<&String> = loads.iter().flat_map(|load| load.params.keys()).collect();
        let keys: Vec<String> = keys.into_iter().filter(differs).cloned().collect();
        for load in loads {
            let told: Vec<String> = keys.iter().filter_map(|key| said(key, &load.params)).collect();
            if !told.is_empty() {
                load.name = format!("{} ({})", load.name, told.join(", "));
            }
        }
    }
}

/// An option as a name has it; nothing if it makes no other load, or is not there.
fn said(key: &str, params: &Params) -> Option<String> {
    let is_double =
        DOUBLE.iter().any(|(theirs, ours)| *theirs == key && params.contains_key(*ours));
    if is_double || NO_LOAD.contains(&key) {
        return None;
    }
    Some(match params.get(key)? {
        Value::String(text) if text.is_empty() => key.to_owned(),
        Value::String(text) => format!("{key}={text}"),
        other => format!("{key}={other}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn load(params: &[(&str, Value)]) -> Workload {
        let params = params.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Workload { name: "seq".into(), runner: "fio".into(), params: params.collect() }
    }

    fn names(mut loads: Vec<Workload>) -> Vec<String> {
        tell_apart(loads.iter_mut());
        loads.into_iter().map(|load| load.name).collect()
    }

    #[test]
    fn what_differs_is_put_to_the_name() {
        let small =
            load(&[("bs", json!("4k")), ("block_size", json!(4096)), ("rw", json!("read"))]);
        let large =
            load(&[("bs", json!("1m")), ("block_size", json!(1 << 20)), ("rw", json!("read"))]);
        let direct = load(&[
            ("bs", json!("4k")),
            ("block_size", json!(4096)),
            ("rw", json!("read")),
            ("direct", json!("1")),
        ]);
        assert_eq!(
            names(vec![small.clone(), large.clone()]),
            ["seq (block_size=4096)", "seq (block_size=1048576)"]
        );
        assert_eq!(names(vec![small.clone(), direct]), ["seq", "seq (direct=1)"]);
        assert_eq!(names(vec![small.clone(), small]), ["seq", "seq"]);
    }

    #[test]
    fn another_place_or_order_is_no_other_load() {
        let one = load(&[("filename", json!("/dev/md0"))]);
        let two = load(&[("filename", json!("/dev/md1")), ("stonewall", json!(""))]);
        assert_eq!(names(vec![one, two]), ["seq", "seq"]);
        let written = load(&[("bs", json!("4k")), ("block_size", json!(4096))]);
        let said = load(&[("bs", json!("4096")), ("block_size", json!(4096))]);
        assert_eq!(names(vec![written, said]), ["seq", "seq"]);
    }
}
