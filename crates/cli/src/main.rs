//! The lapstrake command
fn main() {}
