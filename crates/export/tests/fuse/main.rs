//! Arrays served over FUSE, in one program.

mod file;
mod loop_device;
mod mounts;
mod ring;
mod support;

/// Serves, where it is run by [`support::Setup::serve`].
#[test]
fn the_server_of_the_other_tests() {
    support::serve_if_asked();
}
