#!/usr/bin/env bash
# The parity kernels of ARM (NEON) against the scalar reference, under QEMU's user emulation.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu

not_run() {
    echo "NOT RUN: parity on $target: $1" >&2
    printf 'test-aarch64.sh\tparity on %s: %s\n' "$target" "$1" >>"${LAPSTRAKE_NOT_RUN:-/dev/null}"
    exit 0
}

command -v aarch64-linux-gnu-gcc >/dev/null || not_run "no cross compiler (gcc-aarch64-linux-gnu)"
command -v qemu-aarch64 >/dev/null || not_run "no emulator (qemu-user)"
rustup --quiet target add "$target" || not_run "rustup cannot install the target"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu"
cargo test --locked --package lapstrake-parity --target "$target"
