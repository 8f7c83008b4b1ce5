#!/bin/sh
# Makes maps.txt: asks the kernel's md where it puts each sector of many small arrays.
#
#   KERNEL_MD=COMMAND ./make.sh
#
# COMMAND FILE... -- 'shell commands' must run the commands as root under a kernel with md, with
# mdadm, the FILEs as /dev/ubda, /dev/ubdb, ... and this machine's root directory as /host. To be
# run by hand, when a case is added; the tests read the file that it leaves. Takes some minutes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$here/maps.py" plan "$work"
members=$(cd "$work" && ls member.*)
cd "$work"
# shellcheck disable=SC2086
KERNEL_MD_S=${KERNEL_MD_S:-1200} ${KERNEL_MD:-kernel-md} $(printf "$work/%s " $members) \
    -- "sh /host$work/commands" > "$work/log"
python3 "$here/maps.py" read "$work" > "$here/maps.txt.new"
mv "$here/maps.txt.new" "$here/maps.txt"
