//! Shows how far a served array's rebuild has come, until it ends.
//!
//! `cargo run -p lapstrake --example watch_rebuild -- NAME`

use lapstrake::control::Client;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("the NAME of an array that is served is needed")?;
    let detail = Client::new().wait(&name, None, |detail| {
        if let Some(sync) = detail.running() {
            let per_mille = sync.per_mille();
            let left = sync.finish_s.map_or_else(String::new, |s| format!(", {s} s left"));
            println!("{}: {}.{} %{left}", sync.action, per_mille / 10, per_mille % 10);
        }
    })?;
    match &detail.last_sync {
        Some(last) => {
            println!("{}: {}; the array is {}", last.action, last.result, detail.state_text())
        }
        None => println!("nothing ran; the array is {}", detail.state_text()),
    }
    Ok(())
}
