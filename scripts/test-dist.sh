#!/usr/bin/env bash
# Installs what `make dist` has made, each in a bare root of its own, and uses it there: makes an array of three image
# files, serves it over NBD to a client outside, and reads back what that wrote. Needs root for chroot.
set -euo pipefail
cd "$(dirname "$0")/.."

export PATH=$PATH:/usr/sbin:/sbin
work=$(mktemp -d)
chmod 755 "$work"
# Where members are within each root.
inner=/tmp/array-$(basename "$work")
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
head -c $((20 << 20)) /dev/urandom >"$work/data"
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
host=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')

not_run() {
    echo "NOT RUN: $1" >&2
    printf 'test-dist.sh\t%s\n' "$1" >>"${LAPSTRAKE_NOT_RUN:-/dev/null}"
}
fail() { echo "test-dist: $1" >&2; exit 1; }

# use WHAT ROOT COMMAND...: COMMAND is lapstrake in a place whose / is ROOT.
use() {
    local what=$1 place=${2%/}$inner waited=0 server
    shift 2
    mkdir -p -m 777 "$place"
    truncate -s 16M "$place"/{a,b,c}
    chmod 666 "$place"/{a,b,c}
    "$@" create data --level 5 --raid-devices 3 --assume-clean "$inner"/{a,b,c} >"$work/log"
    "$@" serve "$inner"/{a,b,c} --nbd "unix:$inner/nbd" >"$work/log" 2>&1 &
    server=$!
    until [ -S "$place/nbd" ]; do
        kill -0 $server 2>/dev/null && [ $((waited += 1)) -le 300 ] || { cat "$work/log" >&2; fail "$what: no server"; }
        sleep 0.1
    done
    nbdcopy "$work/data" "nbd+unix:///?socket=$place/nbd"
    "$@" status | grep -q '^data' || fail "$what: status does not know the array"
    "$@" fail data "$inner"/b
    nbdcopy "nbd+unix:///?socket=$place/nbd" "$work/back"
    cmp -n $((20 << 20)) "$work/data" "$work/back" || fail "$what: what was written is not what was read"
    "$@" stop data
    wait $server || fail "$what: the server ended with $?"
    rm -r "$place"
    echo "test-dist: $what: written, a member failed, read back"
}

# bare SUITE: makes a Debian with nothing but apt below $work/SUITE, from where this machine's apt has its packages.
bare() {
    local mirror
    for mirror in $(apt-get update --print-uris 2>/dev/null | sed -nE "s,^'([^']*)/dists/[a-z]*/InRelease'.*,\1,p" | sort -u); do
        mmdebstrap --quiet --variant=apt --format=directory "$1" "$work/$1" \
            "deb $mirror $1 main" 2>"$work/log" && return
        rm -rf "${work:?}/$1"
    done
    not_run "the package on Debian's $1: $(tail -1 "$work/log" 2>/dev/null)"
    return 1
}

# The program by itself: no /proc, no /dev, no /etc, no root.
archive() {
    local root=$work/alone
    mkdir -p "$root/tmp"
    chmod 1777 "$root/tmp"
    tar -C "$root" -xJf "dist/lapstrake-$version-linux-$host.tar.xz"
    use "the archive as an ordinary user, without /proc" "$root" \
        chroot --userspec=65534:65534 "$root" "/lapstrake-$version/bin/lapstrake"
    use "the archive, on threads" "$root" env LAPSTRAKE_BACKEND=threads \
        chroot --userspec=65534:65534 "$root" "/lapstrake-$version/bin/lapstrake"
    use "the container's contents, as root" "$root" chroot "$root" "/lapstrake-$version/bin/lapstrake"
}

package() {
    bare "$1" || return 0
    cp "dist/lapstrake_$version-1_$host.deb" "$work/$1/tmp/"
    chroot "$work/$1" sh -c 'apt-get -qq install -y ./tmp/lapstrake_*.deb' >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; fail "apt does not install the package on $1"; }
    use "the package on Debian's $1" "$work/$1" chroot "$work/$1" lapstrake
    [ -e "$work/$1/usr/share/man/man1/lapstrake-serve.1.gz" ] || fail "$1: no manual page"
    chroot "$work/$1" sh -c 'apt-get -qq remove -y lapstrake' >"$work/log" 2>&1 || fail "$1: cannot be removed"
    rm -rf "${work:?}/$1"
}

# Of the other architecture, emulated.
foreign() {
    [ -e "dist/lapstrake_$version-1_arm64.deb" ] && [ "$host" = amd64 ] || return 0
    command -v qemu-aarch64 >/dev/null || { not_run "the package for arm64: no emulator (qemu-user)"; return 0; }
    dpkg-deb --extract "dist/lapstrake_$version-1_arm64.deb" "$work/arm64"
    use "the package for arm64, emulated" / env LAPSTRAKE_RUN_DIR="$work/run" qemu-aarch64 "$work/arm64/usr/bin/lapstrake"
}

(cd dist && sha256sum --quiet --check SHA256SUMS)
for deb in dist/*.deb; do
    lintian --fail-on error,warning --allow-root "$deb" || fail "lintian: $deb"
done
if [ "$(id -u)" = 0 ]; then
    archive
    for suite in bookworm trixie; do package "$suite"; done
else
    not_run "packages and archive in bare roots: chroot needs root"
fi
foreign
cargo install --quiet --locked --path crates/cli --root "$work/cargo"
"$work/cargo/bin/lapstrake" --version
