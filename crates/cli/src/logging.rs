//! What goes to standard error: events of `tracing`, one a line, written by [`crate::words`].
//!
//! As text they are told to whoever is at the terminal: `lapstrake: `, the array's name if one is served, and the
//! message; the fields of an event of `--verbose` too, since its message does not say them. As JSON they are for
//! programs. Where standard error goes to the journal, each line begins with its priority, as in sd-daemon(3).

use crate::words;
use clap::{ArgAction, ValueEnum};
use serde_json::json;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, error};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer, debug_fn};
use tracing_subscriber::fmt::{FmtContext, FormattedFields, MakeWriter, SubscriberBuilder};
use tracing_subscriber::registry::LookupSpan;

/// The same for every command.
#[derive(clap::Args)]
#[command(next_help_heading = "Messages")]
pub struct Args {
    /// Tell more on standard error: each superblock and bitmap page that is written, each measurement of the lab; given
    /// twice, each request and each I/O of members
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    /// How messages on standard error are written
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log_format: Format,
}

impl Args {
    fn level(&self) -> Level {
        match self.verbose {
            0 => Level::INFO,
            1 => Level::DEBUG,
            _ => Level::TRACE,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A sentence a line
    Text,
    /// A JSON object a line, with timestamp, level, target, fields (of which one is message) and spans
    Json,
}

static STYLE: OnceLock<Style> = OnceLock::new();

/// How a line is written.
#[derive(Clone, Copy)]
struct Style {
    format: Format,
    to_journal: bool,
}

/// Has events written from now on; `names_arrays`: text tells which array an event is of.
pub fn start(args: &Args, names_arrays: bool) {
    let style = Style { format: args.log_format, to_journal: goes_to_journal() };
    let style = *STYLE.get_or_init(|| style);
    let lines = SubscriberBuilder::default()
        .with_max_level(args.level())
        .with_ansi(false)
        // They would go past the queue, and panic where standard error is gone.
        .log_internal_errors(false)
        .with_writer(Lines(style));
    let text = Text { names_arrays };
    // Only a second call would be refused, and there is none.
    let _ = match style.format {
        Format::Text => tracing::subscriber::set_global_default(
            lines.fmt_fields(debug_fn(write_name)).event_format(text).finish(),
        ),
        Format::Json => {
            tracing::subscriber::set_global_default(lines.json().with_current_span(false).finish())
        }
    };
}

/// Tells why a command failed: as text line by line, as JSON in one object.
pub fn tell_failure(message: &str) {
    match STYLE.get().map(|style| style.format) {
        Some(Format::Json) => error!("{message}"),
        Some(Format::Text) | None => message.lines().for_each(|line| error!("{line}")),
    }
}

/// The line that stands for so many that found no room.
pub fn lost(count: u64) -> String {
    let message = match count {
        1 => "a line is missing here: nobody took it".to_owned(),
        count => format!("{count} lines are missing here: nobody took them"),
    };
    let style = STYLE.get().copied();
    let style = style.unwrap_or(Style { format: Format::Text, to_journal: false });
    style.finished(
        Level::WARN,
        &match style.format {
            Format::Text => format!("lapstrake: {message}"),
            Format::Json => json!({
                "timestamp": jiff::Timestamp::now().to_string(),
                "level": "WARN",
                "fields": { "message": message, "lost": count },
                "target": module_path!(),
            })
            .to_string(),
        },
    )
}

/// Whether standard error is the journal's socket: the environment names its device and inode.
fn goes_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = io::stderr().as_fd().try_clone_to_owned();
    let is = stderr.and_then(|stderr| File::from(stderr).metadata());
    is.is_ok_and(|is| stream == format!("{}:{}", is.dev(), is.ino()))
}

impl Style {
    /// An event's text, with its priority before each of its lines if they go to the journal.
    fn finished(self, level: Level, text: &str) -> String {
        if !self.to_journal {
            return text.to_owned();
        }
        let priority = match level {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let lines: Vec<String> = text.lines().map(|line| format!("<{priority}>{line}")).collect();
        lines.join("\n")
    }
}

/// Makes a writer for each event, since a line's priority is that of its event.
struct Lines(Style);

impl MakeWriter<'_> for Lines {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(self.0, Level::INFO)
    }

    fn make_writer_for(&self, metadata: &Metadata<'_>) -> Line {
        Line(self.0, *metadata.level())
    }
}

struct Line(Style, Level);

impl io::Write for Line {
    /// Takes a whole event.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        words::say(&self.0.finished(self.1, text.trim_end_matches('\n')));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Of a span's fields the text needs the array's name, as it is.
fn write_name(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    match field.name() {
        "array" => write!(writer, "{value:?}"),
        _ => Ok(()),
    }
}

/// The format of [`Format::Text`].
struct Text {
    names_arrays: bool,
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str("lapstrake: ")?;
        let mut spans = context.event_scope().into_iter().flatten();
        let array = spans.find(|span| self.names_arrays && span.name() == "array");
        if let Some(array) = array
            && let Some(name) = array.extensions().get::<FormattedFields<N>>()
        {
            write!(writer, "{name}: ")?;
        }
        let mut words = Words::default();
        event.record(&mut words);
        writer.write_str(&words.message)?;
        if *event.metadata().level() > Level::INFO {
            writer.write_str(&words.fields)?;
        }
        writeln!(writer)
    }
}

/// What an event says.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Strings take all.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_an_event_has_its_priority_in_the_journal() {
        let style = |to_journal| Style { format: Format::Text, to_journal };
        assert_eq!(style(true).finished(Level::WARN, "one\ntwo"), "<4>one\n<4>two");
        assert_eq!(style(true).finished(Level::TRACE, "one"), "<7>one");
        assert_eq!(style(false).finished(Level::WARN, "one\ntwo"), "one\ntwo");
    }
}
