#!/usr/bin/env bash
# judges.sh [newest|trixie|lockless]...: makes kernels with mdadm below target/judges, for tests that hold Lapstrake
# against more than the machine's own md. Without arguments: newest. newest and trixie are User-Mode Linux and mdadm of
# Debian sid and 13, unpacked with the libraries they need. lockless is built from sid's kernel source, with what
# Debian's build leaves out; it takes about ten minutes and 2 GB, and its mdadm is newest's. Nothing of the system
# changes, and no root is needed. Does nothing, quickly, when all is there; says aloud what it cannot get, and goes on:
# tests that need it say so themselves.
#
# tests/kernel/judges.lock pins each package's version and checksum. A version that the mirror no longer has is
# replaced by the newest, which apt verifies by the release's signature.
set -euo pipefail
cd "$(dirname "$0")/.."

pins=$PWD/tests/kernel/judges.lock
mkdir -p "${CARGO_TARGET_DIR:-target}/judges"
judges=$(realpath "${CARGO_TARGET_DIR:-target}/judges")
config=$PWD/tests/kernel/lockless.config
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
declare -A suite_of=([newest]=sid [trixie]=trixie [lockless]=sid)

say() { echo "judges: $*" >&2; }

# pinned JUDGE: lines of package, version, checksum.
pinned() { awk -v judge="$1" '$1 == judge { print $2, $3, $4 }' "$pins"; }

# What a judge was made of, and where: its kernel knows its loader by the absolute path.
stamp_of() {
    pinned "$1"
    echo "$judges/$1"
    [ "$1" != lockless ] || sha256sum <"$config"
}

# The addresses of the system's own Debian archive, as apt reads them from its sources.
mirrors() {
    local codename
    codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-sid}")
    apt-get update --print-uris 2>/dev/null |
        sed -nE "s,^'([^']*)/dists/($codename|stable|testing|unstable|sid)/InRelease'.*,\1,p" | sort -u
}

# apt_of JUDGE TOOL ...: apt-get or apt-cache, with package lists of the judge's own.
apt_of() {
    local lists=$judges/$1/apt tool=$2
    shift 2
    "$tool" -o Dir::Etc::SourceList="$lists/sources.list" -o Dir::Etc::SourceParts=- \
        -o Dir::State="$lists" -o Dir::State::Lists="$lists/lists" -o Dir::Cache="$lists/cache" \
        -o APT::Sandbox::User="" -o Acquire::Languages=none -o APT::Architecture=amd64 "$@"
}

# update JUDGE: fetches its suite's lists from the first mirror that has it, signed by Debian.
update() {
    local mirror lists=$judges/$1/apt
    mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial"
    for mirror in $(mirrors); do
        echo "deb [arch=amd64 signed-by=$keyring] $mirror ${suite_of[$1]} main" >"$lists/sources.list"
        # Without the option a mirror that does not answer is only warned of.
        apt_of "$1" apt-get update -qq -o APT::Update::Error-Mode=any >"$lists/log" 2>&1 && return
    done
    say "cannot get the package lists of ${suite_of[$1]}: $(tail -1 "$lists/log" 2>/dev/null)"
    return 1
}

matches() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

# fetch JUDGE PACKAGE VERSION CHECKSUM: its .deb, in the current directory, which is empty.
fetch() {
    local newest=$2
    if apt_of "$1" apt-get download -qq "$2=$3" >/dev/null 2>&1; then
        matches ./*.deb "$4" && return
        say "$2 $3 is not the package that $pins names: its checksum differs"
        return 1
    fi
    # Kernel sources have the version in their name.
    [[ $2 != linux-source-* ]] ||
        newest=$(apt_of "$1" apt-cache depends linux-source | sed -n 's/^ *Depends: //p')
    apt_of "$1" apt-get download -qq "$newest" >/dev/null 2>&1 ||
        { say "cannot download $newest of $1"; return 1; }
    echo "$1: $2 $3 is no longer to be had; $newest $(dpkg-deb -f ./*.deb Version) is in its place" \
        >>"$judges/$1/replaced"
}

# obtain JUDGE: fills its directory debs, which keeps what is there already.
obtain() {
    local package version checksum debs=$judges/$1/debs updated=
    mkdir -p "$debs"
    rm -f "$judges/$1/replaced"
    while read -r package version checksum; do
        [ -e "$debs/$package.deb" ] && matches "$debs/$package.deb" "$checksum" && continue
        [ "$updated" ] || { echo "judges: downloading $1" && update "$1"; } || return
        updated=yes
        rm -rf "$judges/$1/part"
        mkdir "$judges/$1/part"
        (cd "$judges/$1/part" && fetch "$1" "$package" "$version" "$checksum") || return
        mv "$judges/$1/part/"*.deb "$debs/$package.deb"
    done < <(pinned "$1")
}

# unpack JUDGE: makes its root, whose kernel takes the C library beside it.
unpack() {
    local package root=$judges/$1/root
    local lib=$root/usr/lib/x86_64-linux-gnu
    rm -rf "$root"
    mkdir "$root"
    while read -r package _; do
        dpkg-deb --extract "$judges/$1/debs/$package.deb" "$root" || return
    done < <(pinned "$1")
    # Nine tenths of it are modules of other drivers, and pages to read.
    rm -r "$root/usr/share"
    find "$root"/usr/lib/uml/modules/*/kernel{,/drivers} -mindepth 1 -maxdepth 1 \
        -not -name crypto -not -name lib -not -name drivers -not -name md -not -name block \
        -exec rm -r {} +
    patchelf --set-interpreter "$lib/ld-linux-x86-64.so.2" --set-rpath "$lib" "$root/usr/bin/linux.uml"
}

# build lockless: makes its kernel of the source package and the checked-in configuration.
build() {
    local tree=$judges/$1/part/tree log=$judges/$1/build.log
    echo "judges: building $1: about ten minutes on two cores"
    rm -rf "$judges/$1/part"
    mkdir -p "$tree"
    dpkg-deb --fsys-tarfile "$judges/$1"/debs/linux-source-*.deb |
        tar -x --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' |
        tar -xJ --strip-components=1 -C "$tree" || return
    cp "$config" "$tree/.config"
    nice make -C "$tree" ARCH=um olddefconfig >"$log" 2>&1 &&
        nice make -C "$tree" ARCH=um -j"$(nproc)" linux >>"$log" 2>&1 ||
        { say "the kernel does not build: $(tail -1 "$log") ($log)"; return 1; }
    mv "$tree/linux" "$judges/$1/linux"
}

# say_replaced JUDGE: which packages are not those that are pinned.
say_replaced() {
    local line
    [ ! -e "$judges/$1/replaced" ] || while read -r line; do say "$line"; done <"$judges/$1/replaced"
}

# make_ready JUDGE: once, however many ask.
make_ready() {
    local stamp=$judges/$1/stamp
    mkdir -p "$judges/$1"
    exec 9>"$judges/$1/lock"
    flock 9
    [ -e "$stamp" ] && [ "$(<"$stamp")" = "$(stamp_of "$1")" ] && { say_replaced "$1"; return; }
    rm -f "$stamp"
    local make=unpack
    [ "$1" != lockless ] || make=build
    obtain "$1" && "$make" "$1" || { say "$1 is not there; tests that need it are skipped"; return 0; }
    stamp_of "$1" >"$stamp"
    say_replaced "$1"
    rm -rf "$judges/$1/apt" "$judges/$1/part"
}

for program in apt-get dpkg-deb patchelf flock; do
    command -v "$program" >/dev/null || { say "no $program: only the machine's own kernel judges"; exit 0; }
done
[ "$(uname -m)" = x86_64 ] || { say "User-Mode Linux runs on x86-64 only"; exit 0; }
for judge in "${@:-newest}"; do
    [ "${suite_of[$judge]:-}" ] || { say "$judge: there are ${!suite_of[*]}"; exit 2; }
    make_ready "$judge"
done
