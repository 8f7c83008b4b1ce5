#!/bin/sh
# Makes maps.txt and sizes.txt: asks the kernel's md where it puts each sector of many small arrays,
# and mdadm and md which sizes they give to arrays of many devices.
#
#   KERNEL_MD=COMMAND ./make.sh [maps|sizes]
#
# COMMAND FILE... -- 'shell commands' must run the commands as root under a kernel with md, with
# mdadm, the FILEs as /dev/ubda, /dev/ubdb, ... and this machine's root directory as /host. To be
# run by hand, when a case is added; the tests read the files that it leaves. Takes some minutes.
# TMPDIR must be on a filesystem that takes sparse files of 10 TiB.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for what in ${1:-maps sizes}; do
    rm -rf "$work"/*
    python3 "$here/$what.py" plan "$work"
    # shellcheck disable=SC2046
    KERNEL_MD_S=${KERNEL_MD_S:-1800} ${KERNEL_MD:-kernel-md} $(printf '%s ' "$work"/member.*) \
        -- "sh /host$work/commands" > "$work/log"
    python3 "$here/$what.py" read "$work" > "$here/$what.txt.new"
    mv "$here/$what.txt.new" "$here/$what.txt"
done
