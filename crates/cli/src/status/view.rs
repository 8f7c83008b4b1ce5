//! What a server tells about its array, in the commands' words.

pub use lapstrake::control::{
    ArrayState, Detail as View, MemberDetail as MemberView, MemberState, SyncAction,
    SyncDetail as SyncView, SyncResult,
};

/// When it will be done, if that can be told, and how fast it is; in md's words.
pub fn pace(sync: &SyncView) -> String {
    let finish = sync.finish_s.map(|s| format!("finish={}.{}min ", s / 60, s % 60 / 6));
    format!("{}speed={}K/sec", finish.unwrap_or_default(), sync.speed_bytes >> 10)
}

/// What a check or repair that could run waits for.
pub fn waits(view: &View) -> Option<String> {
    view.running().filter(|sync| sync.awaits_window)?;
    Some(format!("waits for check_window {}", view.check_window.as_deref().unwrap_or_default()))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A RAID5 of three and a spare as its server tells it, with some fields changed.
    pub fn raid5(changes: Value) -> View {
        let sample = include_str!("../../tests/cli/support/detail.json");
        let mut view: Value = serde_json::from_str(sample).unwrap();
        for (field, value) in changes.as_object().unwrap() {
            view[field] = value.clone();
        }
        serde_json::from_value(view).unwrap()
    }

    /// A sync action 12.6 per cent done, of 64512 KiB.
    pub fn sync(action: &str, frozen: bool) -> Value {
        json!({
            "action": action, "done_bytes": 8144 << 10, "total_bytes": 64512 << 10,
            "speed_bytes": 33440 << 10, "finish_s": 7650, "frozen": frozen,
        })
    }

    #[test]
    fn a_files_name_is_read_from_its_uri() {
        let file = |uris: Value| raid5(json!({ "exports": uris })).file();
        let uris = json!(["nbd+unix:///data?socket=/x.nbd", "file:///a%20b/data%25.raw"]);
        assert_eq!(file(uris), Some("/a b/data%.raw".into()));
        assert_eq!(file(json!(["nbd://localhost:10809/data"])), None);
    }

    #[test]
    fn a_speed_of_nothing_has_no_end() {
        let view = raid5(json!({ "sync": { "action": "check", "done_bytes": 0, "total_bytes": 1,
            "speed_bytes": 0, "finish_s": null, "frozen": false } }));
        assert_eq!(pace(view.sync.as_ref().unwrap()), "speed=0K/sec");
    }
}
