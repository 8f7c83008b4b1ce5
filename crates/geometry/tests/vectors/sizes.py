"""Finds out which sizes and offsets mdadm and md choose; see make.sh.

`plan DIR` writes sparse device images and the commands for the kernel; `read DIR` reads the
superblocks that the kernel left and prints a line per array, all in sectors: what was asked, then
"->", then what was made, or "refused". A member missing is not counted in `devices`.
"""

import itertools
import re
import struct
import sys

K, M, G, T = 2, 2 << 10, 2 << 20, 2 << 30
DEVICES = [
    1100 * K,
    2600 * K + 3,
    20000 * K,
    64 * M,
    65 * M + 5 * K,
    1 * G,
    8 * G + 4 * K,
    9 * G - 7,
    90 * G,
    101 * G,
    200 * G + 64 * K,
    201 * G,
    4 * T + 192 * K,
    10 * T,
]
LEVELS = [
    # mdadm's options, slots, devices present
    ("-l 1", 2, 1),
    ("-l 1 -z 640", 2, 1),
    ("-l 1 -b internal", 2, 1),
    ("-l 1 -b internal --bitmap-chunk 1M", 2, 1),
    ("-l 1 -b none", 2, 1),
    ("-l 4 -c 64", 2, 1),
    ("-l 5 -c 4", 2, 1),
    ("-l 5 -c 64 -z 1000", 2, 1),
    ("-l 5", 2, 1),
    ("-l 10 -c 64 -p n2", 3, 2),
    ("-l 10 -c 64 -p f2 -b internal", 3, 2),
    ("-l 6 -c 64 -b internal", 4, 2),
    ("-l 5 -c 64 -k ppl", 3, 3),
    ("-l 1 --data-offset 300", 2, 1),
    ("-l 0 -c 4 -f", 1, 1),
    ("-l 0 -c 64", 3, 3),
    ("-l 0 -f", 1, 1),
    ("-l 0 -c 4096 -f", 1, 1),
    ("-l linear", 2, 2),
    ("-l linear --rounding 64", 2, 2),
]
# Each version, and which of the devices to take: every one, every fourth, ...
SPARING = {"1.2": 1, "1.1": 4, "1.0": 2, "0.90": 3}


def cases():
    """(version, options, slots, device numbers)"""
    for version, (options, slots, present) in itertools.product(SPARING, LEVELS):
        for first in range(len(DEVICES)):
            # Fewer where little differs; a PPL on large members takes md minutes.
            if first % SPARING[version] or "ppl" in options and DEVICES[first] > 64 * M:
                continue
            # The first device decides the data offset; smaller ones follow.
            if first >= present - 1:
                yield version, options, slots, list(range(first, first - present, -1))


def plan(work):
    for index, size in enumerate(DEVICES):
        with open(f"{work}/member.{index:02}", "wb") as member:
            member.truncate(size * 512)
    with open(f"{work}/commands", "w") as out:
        out.write(COMMANDS.replace("WORK", f"/host{work}"))
        for index, (version, options, slots, devices) in enumerate(cases()):
            names = " ".join(f"/dev/ubd{chr(97 + d)}" for d in devices)
            missing = " missing" * (slots - len(devices))
            out.write(f'go {index} "{names}" -e {version} {options} -n {slots} {names}{missing}\n')


COMMANDS = r"""
echo 0 > /sys/module/md_mod/parameters/start_ro
mkdir -p /dev/md
go() {
  index=$1 devices=$2; shift 2
  if ! mdadm -C /dev/md0 -R -q --assume-clean "$@" >/tmp/said 2>&1; then
    echo "case $index refused $(tr '\n' ' ' < /tmp/said)"
    mdadm -S -q /dev/md0 2>/dev/null
    mdadm --zero-superblock $devices 2>/dev/null
    return
  fi
  md=/sys/block/md0/md
  echo "case $index made layout=$(cat $md/layout | cut -d' ' -f1) chunk=$(($(cat $md/chunk_size) / 512)) component=$(($(cat $md/component_size) * 2)) array=$(blockdev --getsz /dev/md0)"
  mdadm -S -q /dev/md0
  slot=0
  for d in $devices; do
    size=$(blockdev --getsz $d)
    case "$2" in
      1.2) at=8;; 1.1) at=0;; 1.0) at=$(((size - 16) & ~7));; *) at=$(((size & ~127) - 128));;
    esac
    dd if=$d of=WORK/super.$index.$slot bs=512 skip=$at count=8 2>/dev/null
    bitmap=$(dd if=$d bs=512 skip=$at count=1 2>/dev/null | dd bs=1 skip=96 count=4 2>/dev/null | hexdump -e '1/4 "%d"')
    [ "$2" != 0.90 ] || bitmap=8
    dd if=$d of=WORK/bitmap.$index.$slot bs=512 skip=$((at + bitmap)) count=1 2>/dev/null
    slot=$((slot + 1))
  done
  mdadm --zero-superblock $devices
}
"""


def read(work):
    made = {}
    for line in open(f"{work}/log"):
        found = re.match(r"case (\d+) (made|refused) (.*)", line)
        if not found:
            sys.exit(f"the kernel said: {line}")
        made[int(found[1])] = found[3] if found[2] == "made" else None
        if found[2] == "refused":
            print(line.strip(), file=sys.stderr)
    print("# Sizes and offsets that mdadm and the kernel's md chose; made by make.sh, see sizes.py.")
    for index, (version, options, slots, devices) in enumerate(cases()):
        sizes = ",".join(str(DEVICES[d]) for d in devices)
        print(f"version={version} slots={slots} devices={sizes} {options} ->", end=" ")
        if made[index] is None:
            print("refused")
            continue
        members = [member(work, version, index, slot) for slot in range(len(devices))]
        print(made[index], " ".join(members))


def member(work, version, index, slot):
    """One member's superblock:data offset:data size:bad-block log:bitmap (offset/chunk)."""
    block = open(f"{work}/super.{index}.{slot}", "rb").read()
    bitmap = open(f"{work}/bitmap.{index}.{slot}", "rb").read()
    bitmap = bitmap.ljust(56, b"\0")  # There is none where a PPL's size is taken for its place.
    chunk = struct.unpack_from("<I", bitmap, 52)[0]
    if version == "0.90":
        assert struct.unpack_from("<II", block) == (0xA92B4EFC, 0)
        has_bitmap = struct.unpack_from("<I", block, 132)[0] & 1 << 8
        return "-:-:-:-:" + (f"8/{chunk}" if has_bitmap else "-")
    magic, _, features = struct.unpack_from("<III", block)
    assert magic == 0xA92B4EFC
    data_offset, data_size, superblock = struct.unpack_from("<QQQ", block, 128)
    log_size, log_offset = struct.unpack_from("<Hi", block, 186)
    bitmap_offset = struct.unpack_from("<i", block, 96)[0]
    ppl_offset, ppl_size = struct.unpack_from("<hH", block, 96)
    log = log_offset if log_size else "-"
    beside = "-"
    if features & 1:
        assert bitmap[:4] == b"bitm"
        beside = f"{bitmap_offset}/{chunk}"
    elif features & (1024 | 2048):
        beside = f"ppl{ppl_offset}/{ppl_size}"
    return f"{superblock}:{data_offset}:{data_size}:{log}:{beside}"


if __name__ == "__main__":
    {"plan": plan, "read": read}[sys.argv[1]](sys.argv[2])
