//! Lists the arrays whose members are in a directory.
//!
//! `cargo run -p lapstrake --example list_arrays -- DIR`

use lapstrake::metadata::uuid_text;
use lapstrake::scan_directory;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let found = scan_directory(directory)?;
    for array in &found.arrays {
        let level = array.level.map_or_else(|| "of an unknown level".into(), |l| l.to_string());
        println!("{} {}, {level}: {:?}", uuid_text(array.uuid), array.name, array.completeness);
        for candidate in &array.candidates {
            let member = candidate.examination.member();
            match &candidate.verdict {
                Some(verdict) => println!("  {member}: {verdict}"),
                None => println!("  {member}"),
            }
        }
        for slot in array.missing() {
            println!("  {slot} is missing");
        }
    }
    for failure in &found.failures {
        eprintln!("{failure}");
    }
    Ok(())
}
