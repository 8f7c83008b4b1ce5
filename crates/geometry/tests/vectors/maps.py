"""Finds out where md puts each sector of an array; see make.sh.

`plan DIR` writes member images, patterns and the commands for the kernel; `read DIR` reads the
members that the kernel left and prints, for each array, a line of its properties (data sizes of the
members in sectors, md's layout word, chunk in bytes, component in KiB, array size in sectors or
"refused") and a line per slot with what that member holds from its data offset on:

    A*N   array sectors A, A+1, ... (N of them)     P*N   the XOR of the stripe's data
    -*N   nothing written                            QE..*N  the second syndrome, where E.. are the
                                                     powers of g, in base 36, of data 0, 1, ...

A sector of the pattern holds its number, a mark and noise. The mark is a 1 at place 64 + i, where i
is the index of the sector's chunk in its stripe; so Q's bytes from 64 on are the coefficients.
"""

import hashlib
import itertools
import re
import struct
import sys

START = 2048  # data offset that mdadm chooses for members this small, in sectors
EQUAL = [START + 320] * 8
UNEQUAL = [START + n for n in (72, 72, 104, 151, 151, 200)]
MARK = 64
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def cases():
    """(name, level, mdadm's options, data disks, chunk in sectors, layout word to patch in, members)"""

    def equal(n):
        return list(range(n))

    def unequal(*which):
        return [len(EQUAL) + i for i in which]

    for n in (1, 2, 3):
        yield "1", "-f -z 64", 1, 8, None, equal(n)
    for n in (2, 3, 5):
        yield "4", f"-c 8 -z {8 * (n + 2)}", n - 1, 16, None, equal(n)
    for layout in ("la", "ra", "ls", "rs", "parity-first", "parity-last"):
        for n in (2, 3, 4, 5, 8):
            yield "5", f"-c 8 -z {8 * (n + 2)} -p {layout}", n - 1, 16, None, equal(n)
    plain = "la ra ls rs parity-first parity-last ddf-zero-restart ddf-N-restart ddf-N-continue"
    six = "left-asymmetric-6 right-asymmetric-6 left-symmetric-6 right-symmetric-6 parity-first-6"
    for layout in (plain + " " + six).split():
        for n in (4, 5, 6, 7):
            yield "6", f"-c 8 -z {8 * (n + 2)} -p {layout}", n - 2, 16, None, equal(n)
    for layout in ("n2", "f2", "o2", "n3", "f3", "o3", "n4", "f4", "o4"):
        for n in range(int(layout[1]), 7):
            yield "10", f"-c 4 -z 36 -p {layout}", 1, 8, None, equal(n)
    combined = [0x202, 0x10202, 0x302, 0x10302, 0x203, 0x10203]
    far_sets = [0x20201, 0x30201, 0x20301, 0x30301, 0x20202, 0x40201, 0x50201, 0x40301, 0x50301]
    for word in combined + far_sets + [0x40202, 0x50202]:
        for n in range((word & 255) * (word >> 8 & 255), 9):
            yield "10", "-c 4 -z 36 -p n2", 1, 8, word, equal(n)
    for word in (0x60201, 0x80201, 0x101, 0x2, 0x303):
        yield "10", "-c 4 -z 36 -p n2", 1, 8, word, equal(4)
    mixed = [(0, 1, 2, 3, 4, 5), (5, 2, 0), (3, 1, 4, 2), (0, 1, 5), (0, 1)]
    for layout, chunk in itertools.product(("original", "alternate", "dangerous"), (4, 12)):
        for which in mixed:
            yield "0", f"-c {chunk} -p {layout}", 1, 8, None, unequal(*which)
    for rounding in ("", "--rounding=16"):
        yield "linear", rounding, 1, 8, None, unequal(0, 3, 2, 5)


def sector(number, width, chunk):
    mark = bytearray(64)
    mark[number // chunk % width] = 1
    noise = hashlib.shake_128(struct.pack("<Q", number)).digest(512 - MARK - 64)
    return struct.pack("<Q4s", number, b"MARK").ljust(MARK, b"\0") + bytes(mark) + noise


def plan(work):
    for index, size in enumerate(EQUAL + UNEQUAL):
        with open(f"{work}/member.{index:02}", "wb") as member:
            member.truncate(size * 512)
    for width, chunk in {(width, chunk) for _, _, width, chunk, _, _ in cases()}:
        with open(f"{work}/pattern.{width}.{chunk}", "wb") as pattern:
            pattern.write(b"".join(sector(n, width, chunk) for n in range(4096)))
    with open(f"{work}/commands", "w") as out:
        out.write(COMMANDS.replace("WORK", f"/host{work}").replace("START", str(START)))
        for index, (level, options, width, chunk, word, members) in enumerate(cases()):
            devices = " ".join(f"/dev/ubd{chr(97 + m)}" for m in members)
            word = "-" if word is None else word
            out.write(f'go {index} {width}.{chunk} {word} "{devices}" -l {level} {options}\n')


COMMANDS = r"""
echo 0 > /sys/module/md_mod/parameters/start_ro
mkdir -p /dev/md
# A 32-bit little-endian word of file $1 at $2, read, or set to $3.
word() { dd if=$1 bs=1 skip=$2 count=4 2>/dev/null | hexdump -e '1/4 "%u"'; }
set_word() {
  for shift in 0 8 16 24; do printf "\\$(printf %o $(($3 >> shift & 255)))"; done |
    dd of=$1 bs=1 seek=$2 conv=notrunc 2>/dev/null
}
# Puts layout word $2 in the superblock of $1; the checksum is a sum of words with end-around carry.
patch() {
  sum=$(($(word $1 216) - $(word $1 76) + $2))
  [ $sum -ge 0 ] || sum=$((sum + 0xffffffff))
  [ $sum -le 4294967295 ] || sum=$((sum - 0xffffffff))
  set_word $1 76 $2; set_word $1 216 $sum
}
go() {
  index=$1 pattern=$2 patched=$3 devices=$4; shift 4
  count=$(echo $devices | wc -w)
  for d in $devices; do dd if=/dev/zero of=$d bs=64k 2>/dev/null; done
  mdadm -C /dev/md0 -R -q -e 1.1 --assume-clean "$@" -n $count $devices >/tmp/said 2>&1
  if [ $patched != - ]; then
    mdadm -S -q /dev/md0
    for d in $devices; do patch $d $patched; done
    mdadm -A -q /dev/md0 $devices >/tmp/said 2>&1
  fi
  md=/sys/block/md0/md
  if [ "$(cat $md/array_state 2>/dev/null || echo clear)" = clear ] || [ $(blockdev --getsz /dev/md0) = 0 ]; then
    echo "case $index refused $(tr '\n' ' ' < /tmp/said)"
    mdadm -S -q /dev/md0 2>/dev/null
    return
  fi
  [ $(cat $md/rd0/offset) = START ] || echo "case $index has another data offset"
  echo "case $index made layout=$(cat $md/layout | cut -d' ' -f1) chunk=$(cat $md/chunk_size) component=$(cat $md/component_size) size=$(blockdev --getsz /dev/md0)"
  dd if=WORK/pattern.$pattern of=/dev/md0 bs=512 count=$(blockdev --getsz /dev/md0) conv=fsync 2>/dev/null
  mdadm -S -q /dev/md0
  slot=0
  for d in $devices; do
    dd if=$d of=WORK/image.$index.$slot bs=512 skip=START 2>/dev/null
    slot=$((slot + 1))
  done
}
"""


def logarithms():
    table, value = {}, 1
    for power in range(255):
        table[value] = power
        value = value << 1 ^ (0x11D if value & 128 else 0)
    return table


LOG = logarithms()
EXP = {power: value for value, power in LOG.items()}


def times(data, power):
    return data.translate(bytes(0 if b == 0 else EXP[(LOG[b] + power) % 255] for b in range(256)))


def xor(blocks):
    total = 0
    for block in blocks:
        total ^= int.from_bytes(block, "little")
    return total.to_bytes(512, "little")


def token(content, row, width, chunk):
    """What one sector of a member holds; `row` is the sectors at that place on all members."""
    number = struct.unpack_from("<Q", content)[0]
    if number < 4096 and content == sector(number, width, chunk):
        return number
    if not any(content):
        return "-"
    data = sorted(filter(lambda n: isinstance(n, int), (plain(c, width, chunk) for c in row)))
    blocks = [sector(number, width, chunk) for number in data]
    assert len(blocks) == width, "a sector that is neither data nor parity"
    if content == xor(blocks):
        return "P"
    powers = [LOG[coefficient] for coefficient in content[MARK : MARK + width]]
    assert content == xor(times(block, power) for block, power in zip(blocks, powers)), "not Q"
    return "Q" + "".join(DIGITS[power] for power in powers)


def plain(content, width, chunk):
    number = struct.unpack_from("<Q", content)[0]
    return number if number < 4096 and content == sector(number, width, chunk) else None


def shorten(tokens):
    """Runs of a token, or of numbers that follow each other."""
    runs = []
    for item in tokens:
        start, length = runs[-1] if runs else (None, 0)
        if runs and item == (start + length if isinstance(start, int) else start):
            runs[-1] = (start, length + 1)
        else:
            runs.append((item, 1))
    return " ".join(f"{start}*{length}" for start, length in runs)


def asked(options, name):
    """The number given to one of mdadm's options, or 0."""
    words = options.split()
    return int(words[words.index(name) + 1]) if name in words else 0


def read(work):
    made = {}
    for line in open(f"{work}/log"):
        found = re.match(r"case (\d+) (made|refused) (.*)", line)
        if not found:
            sys.exit(f"the kernel said: {line}")
        made[int(found[1])] = found[3] if found[2] == "made" else None
    print("# Where the kernel's md put each sector; made by make.sh, form in maps.py.")
    sizes = EQUAL + UNEQUAL
    for index, (level, options, width, chunk, word, members) in enumerate(cases()):
        member_sizes = ",".join(str(sizes[m] - START) for m in members)
        print(f"\nlevel={level} members={member_sizes} ", end="")
        if made[index] is None:
            chunk, component = asked(options, "-c") * 1024, asked(options, "-z")
            print(f"layout={word or 0} chunk={chunk} component={component} size=refused")
            continue
        print(made[index])
        images = [open(f"{work}/image.{index}.{slot}", "rb").read() for slot in range(len(members))]
        columns = [[image[at : at + 512] for at in range(0, len(image), 512)] for image in images]
        rows = list(itertools.zip_longest(*columns, fillvalue=bytes(512)))
        for column in columns:
            tokens = [token(c, row, width, chunk) for c, row in zip(column, rows)]
            while tokens and tokens[-1] == "-":
                tokens.pop()
            print(shorten(tokens))


if __name__ == "__main__":
    {"plan": plan, "read": read}[sys.argv[1]](sys.argv[2])
