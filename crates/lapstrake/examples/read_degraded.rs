//! Reads a file's bytes out of an array that lacks members, into a file or pipe.
//!
//! `cargo run -p lapstrake --example read_degraded -- OFFSET LENGTH MEMBER... > FILE`
//!
//! Where a file lies on its filesystem, in bytes, `filefrag -v` or `debugfs -R "stat /path"` tells (blocks, times the
//! block's size). Nothing is written to the members.

use lapstrake::{Array, IoError};
use std::error::Error;
use std::io::{self, Write};

/// Bytes at a time.
const PIECE: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().ok_or("OFFSET LENGTH MEMBER... are needed");
    let (offset, length): (u64, u64) = (number()?.parse()?, number()?.parse()?);
    let array = Array::open_read_only(arguments)?;
    for member in array.members() {
        eprintln!("{}: {}", member.name, member.reason);
    }
    let mut output = io::stdout().lock();
    let end = offset.checked_add(length).ok_or("no array is so long")?;
    let mut at = offset;
    while at < end {
        let mut bytes = vec![0; (end - at).min(PIECE) as usize];
        match array.read_at(at, &mut bytes) {
            // A block that nobody has: zeros, and on behind it.
            Err(IoError::Unreadable { offset: bad }) => {
                let next = (bad / array.block_size() + 1) * array.block_size();
                eprintln!("bytes from {bad} on cannot be read; zeros stand for them");
                bytes.truncate((next.min(end) - at) as usize);
                bytes[(bad - at) as usize..].fill(0);
            }
            read => read?,
        }
        output.write_all(&bytes)?;
        at += bytes.len() as u64;
    }
    Ok(())
}
