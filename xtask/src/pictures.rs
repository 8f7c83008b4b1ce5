//! The pictures in docs/pictures, made of what the command does here and now, so that they stay true.
//!
//! `terminal.svg`: the steps of [`SESSION`] on image files, each with what it printed. `report-matrix.png`: the head of the
//! page that `lapstrake lab report` makes of the lab's quick plan, as Chromium shows it. `cargo xtask pictures LAPSTRAKE
//! [STORE]` takes an experiment that was kept before, as a run takes minutes.

use crate::{Error, root, run};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// What is typed, in order, in a directory with five image files.
const SESSION: [&str; 9] = [
    "lapstrake create data --level 5 --bitmap internal --assume-clean disk[0-3].img",
    "lapstrake serve --daemon disk[0-3].img --nbd unix:data.sock",
    "lapstrake status",
    "lapstrake fail data disk1.img",
    "lapstrake add data disk4.img",
    "lapstrake status",
    "lapstrake wait data",
    "lapstrake status --tree",
    "lapstrake stop data",
];
const IMAGES: usize = 5;
const IMAGE_BYTES: u64 = 256 << 20;

/// Columns of the terminal.
const COLUMNS: usize = 100;
/// Of a letter of the font, in units of the picture.
const LETTER_WIDTH: usize = 8;
const LINE_HEIGHT: usize = 18;
const MARGIN: usize = 16;

/// The window in which the page is shown: the matrix of the quick plan ends with it.
const WINDOW: &str = "--window-size=1200,920";
const BYTES_MAX: u64 = 200_000;

/// Exit code of what is done in part, or tells of an array that is degraded.
const IN_PART: i32 = 3;

/// A line of the terminal.
struct Line {
    text: String,
    is_typed: bool,
}

/// Makes both.
pub fn make(lapstrake: &str, store: Option<&str>) -> Result<(), Error> {
    let lapstrake = Path::new(lapstrake).canonicalize()?;
    let pictures = root().join("docs/pictures");
    std::fs::create_dir_all(&pictures)?;
    std::fs::write(pictures.join("terminal.svg"), svg(&session(&lapstrake)?))?;
    let made = tempfile::tempdir()?;
    let store = match store {
        Some(store) => PathBuf::from(store).canonicalize()?,
        None => measured(&lapstrake, &made)?,
    };
    matrix(&lapstrake, &store, &made, &pictures.join("report-matrix.png"))
}

/// Carries the session out. A step that fails ends it: its picture would be of no use.
fn session(lapstrake: &Path) -> Result<Vec<Line>, Error> {
    let dir = tempfile::Builder::new().prefix("md").rand_bytes(2).tempdir()?;
    for image in 0..IMAGES {
        let file = std::fs::File::create(dir.path().join(format!("disk{image}.img")))?;
        file.set_len(IMAGE_BYTES)?;
    }
    let mut lines = Vec::new();
    for step in SESSION {
        lines.push(Line { text: step.to_owned(), is_typed: true });
        let output = in_session(lapstrake, &dir).args(["-c", &format!("{step} 2>&1")]).output()?;
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() && output.status.code() != Some(IN_PART) {
            // A server may be running still; without one there is nothing to stop.
            in_session(lapstrake, &dir).args(["-c", "lapstrake stop data 2>&1"]).output()?;
            return Err(Error::Failed(format!("{step}: {}: {told}", output.status)));
        }
        let told = told.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.extend(told.flat_map(wrapped).map(|text| Line { text, is_typed: false }));
    }
    Ok(lines)
}

/// A shell in the session's directory that finds the command.
fn in_session(lapstrake: &Path, dir: &TempDir) -> Command {
    let mut path = lapstrake.parent().expect("it is a file").as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.current_dir(dir.path()).env("PATH", path);
    shell.env("LAPSTRAKE_RUN_DIR", dir.path().join("run")).env("COLUMNS", COLUMNS.to_string());
    shell
}

/// A line as a terminal breaks it.
fn wrapped(line: &str) -> Vec<String> {
    let letters: Vec<char> = line.chars().collect();
    letters.chunks(COLUMNS).map(|part| part.iter().collect()).collect()
}

/// The terminal, light or dark as the reader has it.
fn svg(lines: &[Line]) -> String {
    let (width, height) =
        (COLUMNS * LETTER_WIDTH + 2 * MARGIN, lines.len() * LINE_HEIGHT + 2 * MARGIN);
    let mut out = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>A RAID5 on four files: created, served; a member fails, another is rebuilt</title>
<style>
rect {{ fill: #f6f8fa; stroke: #d0d7de }}
text {{ font: 13px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }}
.typed {{ fill: #0550ae; font-weight: bold }}
@media (prefers-color-scheme: dark) {{
rect {{ fill: #161b22; stroke: #30363d }}
text {{ fill: #c9d1d9 }}
.typed {{ fill: #79c0ff }}
}}
</style>
<rect x=".5" y=".5" width="{}" height="{}" rx="8"/>
"#,
        width - 1,
        height - 1
    );
    for (place, line) in lines.iter().enumerate() {
        let (prompt, class) = if line.is_typed { ("$ ", r#" class="typed""#) } else { ("", "") };
        let text = escaped(&format!("{prompt}{}", line.text));
        let y = MARGIN + (place + 1) * LINE_HEIGHT - 5;
        // Whatever font the reader has, it is as wide as this.
        let length = (prompt.len() + line.text.chars().count()) * LETTER_WIDTH;
        let written = writeln!(
            out,
            r#"<text x="{MARGIN}" y="{y}" textLength="{length}" xml:space="preserve"{class}>{text}</text>"#
        );
        written.expect("a text takes what is written");
    }
    out + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The lab's quick plan, carried out.
fn measured(lapstrake: &Path, dir: &TempDir) -> Result<PathBuf, Error> {
    let store = dir.path().join("lab.sqlite");
    let mut command = Command::new(lapstrake);
    let status = command.args(["lab", "run", "--store"]).arg(&store).status()?;
    // Out of time before all rounds: the figures are fewer, and true.
    match status.success() || status.code() == Some(IN_PART) {
        true => Ok(store),
        false => Err(Error::Command { command: format!("{command:?}"), status }),
    }
}

/// The head of the report's page.
fn matrix(lapstrake: &Path, store: &Path, dir: &TempDir, picture: &Path) -> Result<(), Error> {
    let page = dir.path().join("report.html");
    let mut report = Command::new(lapstrake);
    run(report.args(["lab", "report", "--store"]).arg(store).arg("-o").arg(&page))?;
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", WINDOW]);
    chromium.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    chromium.arg(format!("--screenshot={}", picture.display()));
    run(chromium.arg(format!("file://{}", page.display())))?;
    let bytes = std::fs::metadata(picture)?.len();
    if bytes > BYTES_MAX {
        let picture = picture.display();
        return Err(Error::Failed(format!("{picture}: {bytes} bytes, more than {BYTES_MAX}")));
    }
    Ok(())
}
