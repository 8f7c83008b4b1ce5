#!/usr/bin/env bash
# dist.sh [deb|all] [amd64|arm64]...: builds what is handed on, for these architectures (both), into dist/: Debian
# packages; with all also archives, the container file, a bill of materials and SHA256SUMS. The programs in them are
# static, so that one serves every release of Debian and every container. Says aloud which architecture it leaves out.
# DEBFULLNAME and DEBEMAIL name the package's maintainer, as for Debian's own tools.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

what=${1:-all}
shift || true
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(amd64 arm64)
say() { echo "dist: $*" >&2; }
# Before anything is touched.
case $what in deb | all) ;; *) say "$what: not deb or all" && exit 2 ;; esac
for arch in "${wanted[@]}"; do
    case $arch in amd64 | arm64) ;; *) say "$arch: not amd64 or arm64" && exit 2 ;; esac
done
CYCLONEDX=0.5.9
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
target=${CARGO_TARGET_DIR:-target}
# It takes the place of dist once all is there.
out=dist.new
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Files and packages have the time of the last commit: built again they are the same.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y Cargo.toml)
export SOURCE_DATE_EPOCH
maintainer="${DEBFULLNAME:-The Lapstrake authors} <${DEBEMAIL:-lapstrake@lapstrake.invalid}>"

left_out() {
    echo "NOT RUN: dist: $1" >&2
    printf 'dist.sh\t%s\n' "$1" >>"${LAPSTRAKE_NOT_RUN:-/dev/null}"
}

machine_of() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; esac; }
target_of() { echo "$(machine_of "$1")-unknown-linux-gnu"; }
program_of() { echo "$target/$(target_of "$1")/dist/lapstrake"; }
host=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')

# can_build ARCH: whether its linker and its standard library are there.
can_build() {
    local linker
    linker=$(machine_of "$1")-linux-gnu-gcc
    [ "$1" = "$host" ] || command -v "$linker" >/dev/null || { left_out "$1: no $linker"; return 1; }
    [ -d "$(rustc --print sysroot)/lib/rustlib/$(target_of "$1")" ] ||
        rustup --quiet target add "$(target_of "$1")" ||
        { left_out "$1: rustup cannot install $(target_of "$1")"; return 1; }
}

# build ARCH...: the static programs. In a shell of its own: what it sets would make the tools static, too.
build() (
    local arch upper targets=()
    for arch in "$@"; do
        upper=$(target_of "$arch" | tr a-z- A-Z_)
        targets+=(--target "$(target_of "$arch")")
        # A static libc finds no getrandom(2) by name at run time, and `/dev/urandom` may not be there.
        export "CARGO_TARGET_${upper}_RUSTFLAGS=-C target-feature=+crt-static --cfg getrandom_backend=\"linux_getrandom\""
        [ "$arch" = "$host" ] || export "CARGO_TARGET_${upper}_LINKER=$(machine_of "$arch")-linux-gnu-gcc"
    done
    cargo build --locked --profile dist --package lapstrake-cli "${targets[@]}"
)

# stage ARCH PREFIX ROOT: all files of it below ROOT.
stage() {
    local doc=$3$2/share/doc/lapstrake
    scripts/install.sh "$(program_of "$1")" "$2" "$3" "$(program_of "$host")"
    install -d "$doc/plans"
    install -m 644 README.md docs/*.md "$doc"
    install -m 644 plans/*.toml "$doc/plans"
    cp "$work/licenses" "$doc/licenses-of-parts.txt"
}

# compress FILE...: as Debian has it, the same each time.
compress() { gzip --best --no-name "$@"; }

# escaped TEXT: as it stands in a replacement of sed's s/.../.../.
escaped() { printf '%s' "$1" | sed 's,[\\/&],\\&,g'; }

# package ARCH: its .deb.
package() {
    local root=$work/deb-$1 doc=$work/deb-$1/usr/share/doc/lapstrake control=$work/deb-$1/DEBIAN
    stage "$1" /usr "$root"
    install -m 644 packaging/debian/copyright "$doc"
    cp CHANGELOG.md "$doc/changelog"
    { echo "lapstrake ($version-1) unstable; urgency=medium"; echo
        echo "  * Built from the sources of Lapstrake $version."; echo
        echo " -- $maintainer  $(date -ud "@$SOURCE_DATE_EPOCH" -R)"; } >"$doc/changelog.Debian"
    compress "$root"/usr/share/man/man1/*.1 "$doc"/changelog* "$doc"/*.md "$doc"/licenses-of-parts.txt
    install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/lapstrake"
    # zsh looks in another place for what packages bring.
    mv "$root/usr/share/zsh/site-functions" "$root/usr/share/zsh/vendor-completions"
    install -d "$control"
    (cd "$root" && find usr -type f -printf '%P\0' | sort -z | sed -z 's,^,usr/,' | xargs -0 md5sum) >"$control/md5sums"
    sed -e "s/@VERSION@/$version-1/; s/@ARCH@/$1/; s/@MAINTAINER@/$(escaped "$maintainer")/" \
        -e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/" packaging/debian/control >"$control/control"
    chmod 644 "$control"/*
    dpkg-deb --root-owner-group -Zxz --build "$root" "$out/lapstrake_$version-1_$1.deb" >/dev/null
}

# archive ARCH: the same files for any Linux, to be copied to /usr/local.
archive() {
    local root=$work/tar-$1 top=lapstrake-$version
    stage "$1" /usr/local "$root"
    mv "$root/usr/local" "$root/$top"
    install -m 644 LICENSE-* CHANGELOG.md "$root/$top/share/doc/lapstrake"
    tar -C "$root" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
        -cJf "$out/lapstrake-$version-linux-$1.tar.xz" "$top"
}

# Of a copy of the sources, since the tool writes beside every Cargo.toml.
bill_of_materials() {
    cargo install --quiet --locked --root "$target/tools" "cargo-cyclonedx@$CYCLONEDX" ||
        { left_out "the bill of materials: cargo-cyclonedx cannot be installed"; return 0; }
    mkdir "$work/sources"
    git ls-files -z | xargs -0 cp --parents -t "$work/sources"
    # Its own target directory would hold nothing; the programs of both architectures are made of the same crates.
    PATH=$PATH:$(realpath "$target")/tools/bin cargo cyclonedx --quiet --format json --spec-version 1.5 \
        --manifest-path "$work/sources/crates/cli/Cargo.toml" --target "$(target_of "$host")"
    sed "s,$work/sources,.,g" "$work/sources/crates/cli/lapstrake-cli.cdx.json" >"$out/lapstrake-$version.cdx.json"
}

archs=()
for arch in "${wanted[@]}"; do
    can_build "$arch" && archs+=("$arch")
done
[ ${#archs[@]} -gt 0 ] || { say "none of ${wanted[*]} can be built here; dist was left as it was" && exit 1; }
rm -rf "$out"
mkdir "$out"
cargo xtask licenses >"$work/licenses"
# Manual pages and completions are written by the one that runs here.
build $(printf '%s\n' "$host" "${archs[@]}" | sort -u)
for arch in "${archs[@]}"; do
    package "$arch"
    [ "$what" = deb ] || archive "$arch"
done
if [ "$what" != deb ]; then
    sed "s/@VERSION@/$version/g" packaging/Containerfile >"$out/Containerfile"
    bill_of_materials
    (cd "$out" && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
fi
chmod 644 "$out"/*
rm -rf dist
mv "$out" dist
ls -l dist
