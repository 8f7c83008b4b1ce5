//! The commands that README and guides tell a reader to type: each page is followed from its first block to its last, in
//! a directory with nothing in it, as a user without privileges.
//!
//! A block ` ```sh ` is run by bash, and each of its commands has to succeed; that of a block ` ```sh exit=N ` ends with that
//! code. ` ```sh not-run ` is not run, and its first line tells the reader what it needs. ` ```toml FILE ` becomes that file.

use crate::support::{Lab, Ran};
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

const NOBODY: u32 = 65534;

/// A fenced block of a page.
struct Block {
    /// Of the page, from 1.
    line: usize,
    /// What stands behind the fence.
    info: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut text = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
            writeln!(text, "{line}").unwrap();
        }
        blocks.push(Block { line: index + 1, info: info.into(), text });
    }
    blocks
}

/// A reader of a page.
struct Reader {
    lab: Lab,
    page: String,
}

impl Reader {
    /// One who has nothing but the command.
    fn of(page: &str) -> Self {
        let lab = Lab::new(&[]);
        for directory in ["bin", "home", "home/tmp"] {
            fs::create_dir(lab.path(directory)).unwrap();
        }
        // The build may lie where an ordinary user cannot look.
        fs::copy(env!("CARGO_BIN_EXE_lapstrake"), lab.path("bin/lapstrake")).unwrap();
        if is_root() {
            for name in [".", "home", "home/tmp"] {
                std::os::unix::fs::chown(lab.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        fs::set_permissions(lab.path("."), fs::Permissions::from_mode(0o755)).unwrap();
        Self { lab, page: page.into() }
    }

    fn types(&self, script: &str) -> Ran {
        let mut bash = self.lab.command("timeout");
        bash.args(["--kill-after=5", "300", "bash", "-euxo", "pipefail", "-c", script]);
        let path = std::env::var("PATH").unwrap_or_default();
        bash.env("PATH", format!("{}:{path}", self.lab.path("bin").display()))
            .env("LAPSTRAKE_RUN_DIR", self.lab.path("home/run"))
            .env("HOME", self.lab.path("home"))
            // A plan works in a directory there that goes by its name, and the same page is followed by others.
            .env("TMPDIR", self.lab.path("home/tmp"))
            .current_dir(self.lab.path("home"));
        if is_root() {
            bash.uid(NOBODY).gid(NOBODY);
        }
        // Servers that go on in the background must not keep the pipes of a test that has failed.
        let (out, err) = (self.lab.path("out"), self.lab.path("err"));
        bash.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
        let code = bash.status().unwrap().code().unwrap_or(-1);
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        Ran { code, out: text(&out), err: text(&err) }
    }

    fn follows(&self, block: &Block) {
        let at = format!("{}:{}", self.page, block.line);
        match block.info.split_once(' ').unwrap_or((&block.info, "")) {
            ("sh", "not-run") => {
                assert!(block.text.starts_with("# Needs "), "{at}: does not say what it needs");
            }
            ("toml", name) => fs::write(self.lab.path("home").join(name), &block.text).unwrap(),
            ("sh", exit) => {
                // bash goes on after a command before one of these has failed.
                let is_checked = !block.text.contains("&&") && !block.text.contains("||");
                assert!(is_checked, "{at}: a command in it may fail unseen");
                let code: i32 = exit.strip_prefix("exit=").unwrap_or("0").parse().unwrap();
                let ran = self.types(&block.text);
                assert_eq!(ran.code, code, "{at}:\n{}\n{}", ran.out, ran.err);
            }
            _ => panic!("{at}: nobody knows what to do with a block of {:?}", block.info),
        }
    }
}

impl Drop for Reader {
    /// Servers that a page leaves behind end with its test.
    fn drop(&mut self) {
        let stop = "for control in run/*.sock; do lapstrake stop $(basename $control .sock); done";
        self.types(stop);
    }
}

fn is_root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}

/// Follows a page, which stops what it serves.
fn follow(page: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let reader = Reader::of(page);
    let blocks = blocks(&fs::read_to_string(root.join(page)).unwrap());
    assert!(blocks.iter().any(|block| block.info == "sh"), "{page}: nothing in it is run");
    blocks.iter().for_each(|block| reader.follows(block));
    let left = reader.types("lapstrake status --json").ok().json();
    let nothing = serde_json::json!({ "arrays": [], "errors": [], "vanished": [] });
    assert_eq!(left, nothing, "{page}: left behind at its end");
}

#[test]
fn readme() {
    follow("README.md");
}

#[test]
fn build_images() {
    follow("docs/images.md");
}

#[test]
fn a_disk_for_a_vm() {
    follow("docs/vm.md");
}

#[test]
fn choose_an_array() {
    follow("docs/choose.md");
}

#[test]
fn measure() {
    follow("docs/measure.md");
}

#[test]
fn operate() {
    follow("docs/operate.md");
}

#[test]
fn when_superblocks_are_gone() {
    follow("docs/deduce.md");
}

#[test]
fn rescue() {
    follow("docs/rescue.md");
}
