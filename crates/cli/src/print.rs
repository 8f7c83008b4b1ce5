//! What a command prints. Unlike the standard library's macros, these never panic.

use std::fmt;
use std::io::{self, Write};

/// A report, as it is, to standard output; see [`print()`].
macro_rules! out {
    ($($text:tt)*) => { $crate::print::print(format_args!($($text)*)) };
}

/// A line of a report; see [`print()`].
macro_rules! outln {
    ($($text:tt)*) => { $crate::print::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line of a report that goes to standard error, or is lost if that cannot take it. A server does not wait for it.
/// What is no report is an event of `tracing`.
macro_rules! errln {
    ($($text:tt)*) => { $crate::words::say(&format!($($text)*)) };
}

/// Exit status where a reader has gone, as after SIGPIPE. Who has read enough, such as `head`, wants no word of it.
pub const PIPE_CLOSED: i32 = 141;

/// Prints to standard output. A report that cannot be written is an error as any other, and the command
/// ends with it.
pub fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = try_print(text) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(PIPE_CLOSED);
        }
        tracing::error!("cannot write to standard output: {error}");
        std::process::exit(1);
    }
}

/// The same for somebody who may have gone.
pub fn try_print(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(crate::words::plain(&text.to_string()).as_bytes())?;
    out.flush()
}
