#!/usr/bin/env bash
# setup.sh [build|demo|dist]: installs what the build, the tests and the benchmarks need; with a word, what that target
# of the Makefile needs only. Does nothing, quickly, when all is there; says aloud what it cannot install, and goes on:
# tests that need it say so themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

build=(gcc libc6-dev pkg-config ca-certificates curl)
demo=(procps fio libnbd-bin)
arm=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)
dist=("${arm[@]}" git lintian xz-utils mmdebstrap libnbd-bin)
tests=(
    g++                                               # libFuzzer
    procps patch git                                  # kill, and patch and git for planted bugs
    user-mode-linux mdadm busybox-static              # the kernel's md, for the interop tests
    patchelf                                          # that of other Debian releases: scripts/judges.sh
    make flex bison bc xz-utils                       # a kernel with all of md: make judge
    nbdkit libnbd-bin python3-libnbd qemu-utils       # NBD clients and servers of others
    ewf-tools                                         # forensic disk images
    openssl python3                                   # certificates for TLS; many NBD clients that are killed
    qemu-system-x86                                   # virtual machines with arrays as disks
    fuse3 libfuse3-dev util-linux mount               # FUSE
    e2fsprogs xfsprogs btrfs-progs                    # filesystems on arrays
    fdisk dosfstools mtools cryptsetup-bin f2fs-tools        # other owners' tools, whose signatures must be found
    nilfs-tools erofs-utils squashfs-tools genisoimage udftools
    jfsutils ntfs-3g exfatprogs bcache-tools tar util-linux-extra
    fio bonnie++ hdparm smartmontools postgresql      # clients of the lab (fio: of tests, too)
    bash-completion fish zsh                          # shells that complete commands
    chromium fonts-dejavu-core                        # the lab's HTML report, as a person sees it
    libisal-dev                                       # the parity benchmark's peer
    "${arm[@]}"                                       # parity on ARM
)
for_what=${1:-tests}
case $for_what in
build) packages=("${build[@]}") ;;
demo) packages=("${build[@]}" "${demo[@]}") ;;
dist) packages=("${build[@]}" "${dist[@]}") ;;
tests) packages=("${build[@]}" "${tests[@]}") ;;
*) echo "setup: $for_what: not build, demo or dist" >&2 && exit 2 ;;
esac
rust_min=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

warn() { echo "setup: $*" >&2; }

missing_packages() {
    local package
    for package in "${packages[@]}"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            echo "$package"
    done
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        sudo "$@"
    else
        return 1
    fi
}

apt_install() {
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

install_packages() {
    local missing package
    mapfile -t missing < <(missing_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    if ! as_root true; then
        warn "not root, and no sudo: cannot install ${missing[*]}"
        return 0
    fi
    echo "setup: installing ${missing[*]}"
    as_root apt-get update -qq >/dev/null || warn "apt-get update failed"
    apt_install "${missing[@]}" && return 0
    # One that cannot be had must not keep the others out.
    for package in "${missing[@]}"; do
        apt_install "$package" || warn "cannot install $package"
    done
}

rust_is_new_enough() {
    local version
    version=$(rustc --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$version" ] && [ "$(printf '%s\n' "$rust_min" "$version" | sort -V | head -1)" = "$rust_min" ]
}

install_rust() {
    export PATH=$HOME/.cargo/bin:$PATH
    if ! rust_is_new_enough; then
        echo "setup: installing Rust with rustup (at least $rust_min is needed)"
        if command -v rustup >/dev/null; then
            rustup toolchain install stable --profile minimal -c rustfmt -c clippy
        else
            curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs |
                sh -s -- -y --profile minimal -c rustfmt -c clippy
        fi || warn "cannot install Rust"
        rust_is_new_enough || { warn "rustc $rust_min or newer is not in the PATH"; return 1; }
    fi
    cargo fetch --locked --quiet || warn "cannot fetch the crates that Cargo.lock names"
    [ "$for_what" = tests ] || return 0
    bare_target=$(rustc --print sysroot)/lib/rustlib/x86_64-unknown-none
    if [ ! -d "$bare_target" ]; then
        rustup target add x86_64-unknown-none 2>/dev/null ||
            warn "cannot add the target x86_64-unknown-none; check-nostd has another proof"
    fi
}

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    install_packages
else
    warn "this is no Debian; install what corresponds to: ${packages[*]}"
fi
install_rust
if [ "$for_what" = tests ]; then
    scripts/judges.sh newest
    scripts/guest.sh
fi
