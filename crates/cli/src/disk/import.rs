//! `lapstrake disk import`.

use super::{TEXT_MAX, text, write};
use crate::exit::{Exit, Failure, Outcome};
use lapstrake_model::diskspecs::{self, File, Text};
use serde_json::json;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Examples:
  lapstrake disk import --model x.model --seek x.seek --diskspecs x.diskspecs -o x.toml

Exit codes:
  0  the profile is written (or was there already, the same)
  1  a file is not DiskSim's, or describes what is not modelled; nothing was written
  2  usage";

/// Make a profile of DiskSim's parameter files.
///
/// Reads DiskSim 4's language: a model (dm_disk with dm_layout_g1 and dm_mech_g1), an extracted seek curve,
/// and disk specs (disksim_disk). Blocks that a file takes from others (source FILE) are read there, relative to the
/// file that names them. What the specs call their model does not matter. A seek curve that the model needs and that is
/// not given is looked for beside the model, under the name that the model gives it and under the model's own name.
#[derive(clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// Layout and mechanism
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Seek times by distance
    #[arg(long, value_name = "FILE")]
    seek: Option<PathBuf>,
    /// Buffer, overheads and queue
    #[arg(long, value_name = "FILE")]
    diskspecs: PathBuf,
    /// The profile to write
    #[arg(short, long, value_name = "PROFILE")]
    output: PathBuf,
    /// Replace a file that holds something else
    #[arg(long)]
    force: bool,
    /// Report in JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let mut sources = Vec::new();
    let model = with_sources(&args.model, &mut sources, DEPTH_MAX)?;
    let specs = with_sources(&args.diskspecs, &mut sources, DEPTH_MAX)?;
    let curve = args.seek.clone().or_else(|| seek_beside(&args.model, &model));
    let seek = curve.as_ref().map(|path| text(path, TEXT_MAX)).transpose()?;
    let profile = diskspecs::import(&model, seek.as_deref(), &specs).map_err(|error| {
        let path = match error.file() {
            File::Specs => &args.diskspecs,
            File::Seek => curve.as_ref().unwrap_or(&args.model),
            File::Model => &args.model,
        };
        Failure::new(format!("{}: {error}; nothing was written", path.display()))
    })?;
    sources.extend(curve);
    let sources: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
    let disk = profile.build().map_err(|error| {
        let named: Vec<String> = sources.iter().map(|path| path.display().to_string()).collect();
        let named = named.join(", ");
        Failure::new(format!(
            "{named}: what they describe is no disk: {error}; nothing was written"
        ))
    })?;
    let was_there = write(&args.output, &sources, &profile.to_toml()?, args.force)?;
    let declared = diskspecs::block_count(&model);
    if args.json {
        let report = json!({
            "profile": args.output.to_string_lossy(),
            "name": profile.name,
            "blocks": disk.blocks(),
            "declared_blocks": declared,
            "was_there": was_there,
        });
        outln!("{report:#}");
    } else {
        let (path, blocks) = (args.output.display(), disk.blocks());
        let note = if was_there { "was already so" } else { "written" };
        outln!("{path}: {note}: {}, {blocks} blocks", profile.name);
        if let Some(declared) = declared.filter(|&declared| declared != blocks) {
            outln!(
                "note: {}: its Block count is {declared}; the profile has what its layout comes to",
                args.model.display()
            );
        }
    }
    Ok(Exit::Done)
}

/// Files that name each other, from the one that was given.
const DEPTH_MAX: usize = 4;
/// Files in all.
const SOURCES_MAX: usize = 64;

/// A file's text with those of the files that it names and that are there; `read` gets the paths of all of them.
fn with_sources(path: &Path, read: &mut Vec<PathBuf>, depth: usize) -> Result<Text, Failure> {
    if depth == 0 || read.len() >= SOURCES_MAX {
        return Err(Failure::new(format!(
            "{}: the files name more than {SOURCES_MAX} others, or each other more than {DEPTH_MAX} deep; nothing was written",
            path.display()
        )));
    }
    let mut whole = Text::from(&*text(path, TEXT_MAX)?);
    read.push(path.to_owned());
    for name in whole.named() {
        let named = path.with_file_name(&name);
        if named.exists() {
            whole = whole.with(&name, with_sources(&named, read, depth - 1)?);
        }
    }
    Ok(whole)
}

/// The seek curve that lies beside a model.
fn seek_beside(path: &Path, model: &Text) -> Option<PathBuf> {
    let named = diskspecs::seek_file_name(model)?;
    let named = path.with_file_name(Path::new(&named).file_name()?);
    [named, path.with_extension("seek")].into_iter().find(|path| path.exists())
}
