//! What an array says goes to the subscriber of who opened it.
//!
//! A program of its own: a subscriber that comes while a thread without one meets a span for the first time may not get
//! that span (tracing-core computes who wants it and lists it in two steps), and the other tests have such threads.

use lapstrake::{Array, CreateOptions, Level};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

#[test]
fn each_array_speaks_to_the_subscriber_of_who_opened_it() {
    let dir = tempfile::tempdir().unwrap();
    let heard = ["one", "two"].map(|name| {
        let path = |nth: usize| dir.path().join(format!("{name}{nth}"));
        let members: Vec<PathBuf> = (0..3).map(path).collect();
        members.iter().for_each(|member| File::create(member).unwrap().set_len(4 << 20).unwrap());
        // As mdadm makes it: its last member is to be rebuilt, which begins at once.
        CreateOptions::new(name, Level::Raid5).create(&members).unwrap();
        let heard = NamedTempFile::new().unwrap();
        let lines = tracing_subscriber::fmt().with_writer(heard.reopen().unwrap()).finish();
        let array = tracing::subscriber::with_default(lines, || Array::open(&members)).unwrap();
        let text = || fs::read_to_string(heard.path()).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        while !text().contains("recovery begins") && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        array.close().unwrap();
        text()
    });
    for (heard, [name, other]) in heard.iter().zip([["one", "two"], ["two", "one"]]) {
        let is_told = |line: &str| {
            line.contains(&format!("array{{array={name} ")) && line.contains("recovery begins")
        };
        assert!(heard.lines().any(is_told), "{heard}");
        assert!(!heard.contains(&format!("array={other}")), "{heard}");
    }
}
