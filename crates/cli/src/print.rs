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

/// A line for whoever is at the terminal, to standard error, or lost if that cannot take it. Here a server
/// does not wait for it.
macro_rules! errln {
    ($($text:tt)*) => { lapstrake_host::words::say(&format!($($text)*)) };
}

/// Prints to standard output. A report that cannot be written is an error as any other, and the command
/// ends with it.
pub fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = try_print(text) {
        errln!("lapstrake: cannot write to standard output: {error}");
        std::process::exit(1);
    }
}

/// The same for somebody who may have gone.
pub fn try_print(text: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)?;
    out.flush()
}
