#!/usr/bin/env python3
"""Makes assemble.jsonl: what mdadm and the kernel make of members in real situations.

    assemble.py KERNEL_MD > assemble.jsonl

KERNEL_MD is a command that takes MEMBER_FILE... -- 'shell commands' and runs the commands in a
guest with the kernel's md and mdadm (4.2 and Linux 6.1.176 made the vectors kept here); the guest
sees the host's files below /host.

First guest: makes arrays, fails, kills and stops them, and keeps the superblocks ("states").
Second guest: puts superblocks of those states on devices, some patched in between, and has mdadm
assemble them read-only, plainly and with --run and --force. Both take about half an hour.

The file: first every superblock that is used, by its name STATE.MEMBER (the bytes that differ
from those of the state's first member, if that is shorter); then every case: the superblocks in
the order given, each with its events if they were patched, and what became of it under each set
of options ("=" is the same as plainly). That is, if the array started, each device's slot, "~"
for one under recovery, "S" for a spare and "F" for a failed one; then "resync SECTOR"; then
"forced DEVICE" for each whose events mdadm raised, and "cleared DEVICE" for each that it took
back though the first member's superblock calls it failed; otherwise "refused: " and mdadm's last
words.
"""
import json, os, re, struct, subprocess, sys, tempfile


# ---- first guest ---------------------------------------------------------------------------

BUILD = r"""
echo 1 >/proc/sys/dev/raid/speed_limit_min; echo 1 >/proc/sys/dev/raid/speed_limit_max
attach() { for i in 0 1 2 3 4 5 6 7; do losetup /dev/loop$i /tmp/m$i; done; }
detach() { for i in 0 1 2 3 4 5 6 7; do losetup -d /dev/loop$i; done; }
zero() { for i in 0 1 2 3 4 5 6 7; do rm -f /tmp/m$i; truncate -s 16M /tmp/m$i; done; }
clean_slate() { mdadm -S /dev/md0; mdadm -S /dev/md1; detach; zero; attach; } >/dev/null 2>&1
devs() { for i in $*; do echo /dev/loop$i; done; }
# Superblocks as they are on the members now.
snap() {
  for i in 0 1 2 3 4 5 6 7; do
    dd if=/tmp/m$i of=$OUT/$1.$i bs=4096 skip=$SB count=1 2>/dev/null
  done
}
# A copy of all members, to go back to.
keep() { rm -rf /tmp/keep; mkdir /tmp/keep; cp /tmp/m? /tmp/keep/; }
back() { mdadm -S /dev/md0; detach; for i in 0 1 2 3 4 5 6 7; do cp /tmp/keep/m$i /tmp/m$i; done; attach; } >/dev/null 2>&1
md() { mdadm "$@" >>/tmp/log 2>&1 </dev/null; }
settle() { sleep 1; }
# Starts without an end of the dirty state.
awake() { echo 3600 >/sys/block/md0/md/safe_mode_delay; }
write() { dd if=/dev/urandom of=/dev/md0 bs=4096 count=1 conv=fsync 2>/dev/null; }
stop() { md -S /dev/md0; }

# variant PREFIX LEVEL N ARGS: the situations of an array with redundancy
variant() {
  p=$1; level=$2; n=$3; shift 3; all=$(devs $(seq 0 $((n-1))))
  clean_slate
  md -C /dev/md0 -R -e $V -l $level -n $n --assume-clean "$@" $all
  settle; stop; snap $p.clean; keep
  md -A /dev/md0 $all; awake; write; snap $p.dirty
  echo clean >/sys/block/md0/md/array_state; snap $p.idle
  write; snap $p.dirty2
  md /dev/md0 -f /dev/loop1; settle; snap $p.fail1; write; snap $p.fail1_dirty
  stop; snap $p.fail1_stop
  md -A -R /dev/md0 $all; awake; write; md /dev/md0 -f /dev/loop0; settle; write; snap $p.fail10
  stop; snap $p.fail10_stop
  back
}

# half PREFIX NAME ROUNDS MEMBERS: from kept members, some alone, so many times
half() {
  p=$1; name=$2; rounds=$3; shift 3
  back
  for r in $(seq $rounds); do md -A -R /dev/md0 $(devs "$@"); awake; write; settle; stop; done
  snap $p.$name
}

for V in 1.2 0.90; do
  [ $V = 1.2 ] && { SB=1; P=; } || { SB=4080; P=o; }
  variant ${P}r1 1 2
  half ${P}r1 a 1 0; half ${P}r1 b 1 1; half ${P}r1 b2 2 1
  variant ${P}r5 5 3
  variant ${P}r10 10 4
  half ${P}r10 a 1 0 2; half ${P}r10 b 2 1 3
done
V=1.2; SB=1; P=
variant r6 6 4
variant r4 4 3
variant r10f 10 4 -p f2
variant r1t 1 3
half r1t a 1 0 1; half r1t b 1 2
half r1t b4 4 2
variant r5pf 5 3 -p parity-first

# without redundancy
for l in 0 linear; do
  clean_slate; md -C /dev/md0 -R -e 1.2 -l $l -n 3 $(devs 0 1 2); write; stop; snap l$l.clean
done
rm -f /tmp/m2; truncate -s 32M /tmp/m2; mdadm -S /dev/md0 >/dev/null 2>&1
clean_slate; detach; truncate -s 12M /tmp/m2; attach
md -C /dev/md0 -R -e 1.2 -l 0 -n 3 $(devs 0 1 2); write; stop; snap r0z.clean

# under recovery, at its start and when stopped, clean and dirty
for c in "r5rec 5 -p=left-symmetric" "r4rec 4 -c=64" "r5pl 5 -p=parity-last" "r10rec 10 -c=64"; do
  set -- $c; p=$1; l=$2; a=${3%=*}; b=${3#*=}; n=3
  clean_slate
  md -C /dev/md0 -R -e 1.2 -l $l -n $n -c 64 $([ $a = -p ] && echo -p $b) $(devs 0 1) missing
  settle; stop
  md -A -R /dev/md0 $(devs 0 1); awake; md /dev/md0 -a /dev/loop2; settle; snap $p.start
  write; snap $p.dirty; echo clean >/sys/block/md0/md/array_state; snap $p.idle
  stop; snap $p.stop
done
# resync: interrupted by a stop, and by a crash
clean_slate; md -C /dev/md0 -R -e 1.2 -l 1 -n 2 $(devs 0 1); settle; awake; snap r1res.run; sleep 3; stop; snap r1res.stop
SB=4080; clean_slate; md -C /dev/md0 -R -e 0.90 -l 1 -n 2 $(devs 0 1); settle; awake; snap or1res.run; sleep 3; stop; snap or1res.stop; SB=1
# spares
clean_slate; md -C /dev/md0 -R -e 1.2 -l 5 -n 3 -x 1 --assume-clean $(devs 0 1 2 3); settle; awake; snap r5x.clean
write; snap r5x.dirty
echo frozen >/sys/block/md0/md/sync_action
md /dev/md0 -f /dev/loop1; settle; snap r5x.fail1; write; snap r5x.fail1_dirty
echo idle >/sys/block/md0/md/sync_action; settle; snap r5x.rec
echo 100000 >/proc/sys/dev/raid/speed_limit_max; echo 100000 >/proc/sys/dev/raid/speed_limit_min
for i in $(seq 50); do [ "$(cat /sys/block/md0/md/sync_action)" = idle ] && break; sleep 0.2; done; settle
snap r5x.done; echo clean >/sys/block/md0/md/array_state; snap r5x.done_idle; stop; snap r5x.done_stop
# removed, not only failed
clean_slate; md -C /dev/md0 -R -e 1.2 -l 5 -n 3 --assume-clean $(devs 0 1 2); settle; awake
md /dev/md0 -f /dev/loop1; settle; snap r5r.fail1; md /dev/md0 -r /dev/loop1; settle; write; settle; snap r5r.removed; stop; snap r5r.removed_stop
# another shape later: grown by a slot
clean_slate; md -C /dev/md0 -R -e 1.2 -l 1 -n 2 --assume-clean $(devs 0 1); settle; stop; snap r1g.old
md -A -R /dev/md0 $(devs 0); md --grow /dev/md0 -n 3 --force; settle; stop; snap r1g.new
# a replacement under way
echo 1 >/proc/sys/dev/raid/speed_limit_max; echo 1 >/proc/sys/dev/raid/speed_limit_min
clean_slate; md -C /dev/md0 -R -e 1.2 -l 1 -n 2 --assume-clean $(devs 0 1); settle
md /dev/md0 -a /dev/loop2; settle; md /dev/md0 --replace /dev/loop1; settle; snap r1w.repl
cat /tmp/log >$OUT/log
"""

# ---- cases ---------------------------------------------------------------------------------


def cases():
    """(name, devices, patches). A device is "state.index"; a patch sets fields of the k-th."""
    for p, n, prefix in [("r1", 2, ""), ("or1", 2, ""), ("r5", 3, ""), ("or5", 3, ""), ("r10", 4, ""), ("or10", 4, ""),
                         ("r6", 4, ""), ("r4", 3, ""), ("r10f", 4, ""), ("r1t", 3, ""), ("r5pf", 3, "")]:
        every = range(n)
        all_of = lambda state: [f"{p}.{state}.{i}" for i in every]
        but = lambda state, *gone: [f"{p}.{state}.{i}" for i in every if i not in gone]
        mix = lambda state, **other: [f"{p}.{other.get(f'm{i}', state)}.{i}" for i in every]
        for state in ("clean", "dirty", "idle", "fail1", "fail1_dirty", "fail1_stop", "fail10", "fail10_stop"):
            yield f"{p}: all, {state}", all_of(state), {}
            yield f"{p}: all reversed, {state}", all_of(state)[::-1], {}
        for state in ("clean", "dirty", "fail1_dirty", "fail1_stop"):
            for gone in every:
                yield f"{p}: {state}, {gone} missing", but(state, gone), {}
        for state in ("clean", "dirty"):
            for a in every:
                for b in range(a):
                    yield f"{p}: {state}, {b} and {a} missing", but(state, a, b), {}
        # one of another moment
        for state, other in (("dirty", "clean"), ("clean", "dirty"), ("idle", "dirty"), ("dirty", "idle"),
                             ("dirty2", "idle"), ("fail1", "clean"), ("fail1_stop", "clean")):
            for i in every:
                yield f"{p}: {state}, {i} as of {other}", mix(state, **{f"m{i}": other}), {}
                if n > 2:
                    gone = (i + 1) % n
                    yield (f"{p}: {state}, {i} as of {other}, {gone} missing",
                           [d for d in mix(state, **{f"m{i}": other}) if not d.endswith(f".{gone}")], {})
        # events by hand
        for behind in (1, 2, 7):
            for i in every:
                yield f"{p}: clean, {i} {behind} behind", all_of("clean"), {i: {"behind": behind}}
                yield f"{p}: fail1, {i} {behind} behind", all_of("fail1_stop"), {i: {"events_of": (0 if i else n - 1, -behind)}}
        yield f"{p}: each further behind", all_of("clean"), {i: {"behind": 3 * i} for i in every}
        yield f"{p}: dirty, each further behind", all_of("dirty"), {i: {"behind": 2 * i} for i in every}
        # twice
        yield f"{p}: a copy last", all_of("clean") + [f"{p}.clean.0"], {}
        yield f"{p}: an older copy first", [f"{p}.clean.0"] + all_of("dirty"), {}
        yield f"{p}: an older copy, much", [f"{p}.clean.0"] + all_of("fail1_stop"), {}
    # split
    for p, a, b in [("r1", "a", "b"), ("r1", "a", "b2"), ("or1", "a", "b"), ("or1", "a", "b2")]:
        one, two = f"{p}.{a}.0", f"{p}.{b}.1"
        for name, d in [("0 1", [one, two]), ("1 0", [two, one]), ("0", [one]), ("1", [two])]:
            yield f"{p}: split {a} {b}, {name}", d, {}
    for b in ("b", "b4"):
        for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
            yield f"r1t: split {b}, {order}", [f"r1t.{'a' if i < 2 else b}.{i}" for i in order], {}
    for p in ("r10", "or10"):
        for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
            yield f"{p}: split, {order}", [f"{p}.{'ab'[i % 2]}.{i}" for i in order], {}
    # no redundancy
    for p in ("l0", "llinear", "r0z"):
        for gone in (None, 0, 1, 2):
            yield f"{p}: {gone} missing", [f"{p}.clean.{i}" for i in range(3) if i != gone], {}
        yield f"{p}: one behind", [f"{p}.clean.{i}" for i in range(3)], {0: {"behind": -1}}
        yield f"{p}: two behind", [f"{p}.clean.{i}" for i in range(3)], {0: {"behind": -2}}
    # recovery
    for p in ("r5rec", "r4rec", "r5pl", "r10rec"):
        for state in ("start", "dirty", "idle", "stop"):
            d = [f"{p}.{state}.{i}" for i in range(3)]
            yield f"{p}: {state}", d, {}
            for gone in range(3):
                yield f"{p}: {state}, {gone} missing", [x for i, x in enumerate(d) if i != gone], {}
    for state in ("run", "stop"):
        for p in ("r1res", "or1res"):
            yield f"{p}: {state}", [f"{p}.{state}.0", f"{p}.{state}.1"], {}
            yield f"{p}: {state}, 1 missing", [f"{p}.{state}.0"], {}
    # spares
    for state in ("clean", "dirty", "fail1", "fail1_dirty", "rec", "done", "done_idle", "done_stop"):
        d = [f"r5x.{state}.{i}" for i in range(4)]
        yield f"r5x: {state}", d, {}
        for gone in range(4):
            yield f"r5x: {state}, {gone} missing", [x for i, x in enumerate(d) if i != gone], {}
    yield "r5x: an old spare", ["r5x.fail1_dirty.0", "r5x.fail1_dirty.2", "r5x.clean.3"], {}
    yield "r5x: spare of before its recovery", ["r5x.done_idle.0", "r5x.done_idle.2", "r5x.fail1.3"], {}
    yield "r5x: spare of more events", [f"r5x.clean.{i}" for i in range(4)], {3: {"behind": -5}}
    yield "r5x: spares only", ["r5x.clean.3"], {}
    yield "r5x: failed came back", ["r5x.done_idle.0", "r5x.clean.1", "r5x.done_idle.2", "r5x.done_idle.3"], {}
    yield "r5x: failed came back for the new one", ["r5x.done_idle.0", "r5x.clean.1", "r5x.done_idle.2"], {}
    yield "r5x: spare given twice", ["r5x.clean.0", "r5x.clean.1", "r5x.clean.2", "r5x.clean.3", "r5x.clean.3"], {}
    for state in ("fail1", "removed", "removed_stop"):
        d = [f"r5r.{state}.{i}" for i in range(3)]
        yield f"r5r: {state}", d, {}
        yield f"r5r: {state}, the removed one 1 behind", d, {1: {"events_of": (0, -1)}}
        yield f"r5r: {state}, the removed one level", d, {1: {"events_of": (0, 0)}}
    yield "r1g: grown, and an old one", ["r1g.new.0", "r1g.old.1"], {}
    yield "r1g: an old one first", ["r1g.old.1", "r1g.new.0"], {}
    yield "r1w: replacement", [f"r1w.repl.{i}" for i in range(3)], {}
    yield "r1w: replacement for the original", ["r1w.repl.0", "r1w.repl.2"], {}
    yield "two arrays", ["r1.clean.0", "r1t.clean.1"], {}
    yield "two arrays of one shape", ["r1.clean.0", "r1res.stop.1"], {}
    # It missed the superblocks that made it a member: a crash between two writes.
    for state in ("rec", "done_idle", "done_stop"):
        d = [f"r5x.{state}.0", f"r5x.{state}.2", "r5x.fail1.3"]
        yield f"r5x: spare of before its recovery, {state}", d, {}
        yield f"r5x: spare of before its recovery, {state}, 1 behind", d, {2: {"events_of": (0, -1)}}


# ---- superblocks ---------------------------------------------------------------------------


def is_old(sb):
    return struct.unpack_from("<I", sb, 4)[0] == 0


def events(sb):
    return struct.unpack_from("<Q", sb, 156 if is_old(sb) else 200)[0]


def set_events(sb, value):
    sb = bytearray(sb)
    if is_old(sb):
        if sb[156:164] == sb[164:172]:
            struct.pack_into("<Q", sb, 164, value)
        struct.pack_into("<QI", sb, 156, value, *struct.unpack_from("<I", sb, 164))
        struct.pack_into("<I", sb, 152, 0)
        total, at = sum(struct.unpack("<1024I", sb)), 152
    else:
        struct.pack_into("<Q", sb, 200, value)
        struct.pack_into("<I", sb, 216, 0)
        words = 64 + struct.unpack_from("<I", sb, 220)[0] // 2
        total, at = sum(struct.unpack_from(f"<{words}I", sb)), 216
    struct.pack_into("<I", sb, at, ((total & 0xFFFFFFFF) + (total >> 32)) & 0xFFFFFFFF)
    return bytes(sb)


def patched(blobs, patches):
    # Room below zero, for all alike.
    blobs = [set_events(sb, events(sb) + 100) for sb in blobs] if patches else list(blobs)
    before = list(blobs)
    for k, patch in patches.items():
        if "behind" in patch:
            blobs[k] = set_events(blobs[k], events(blobs[k]) - patch["behind"])
        else:
            of, add = patch["events_of"]
            blobs[k] = set_events(blobs[k], events(before[of]) + add)
    return blobs


def runs(data):
    """Runs of bytes other than zero, as [offset, hex]; a run may hold up to 15 zeros."""
    out = []
    for run in re.finditer(rb"[^\0](?:\0{0,15}[^\0])*", data, re.S):
        text, tail = run[0], len(run[0]) - len(run[0].rstrip(b"\xff"))
        if tail > 64:
            text = text[:-tail]
            out.append([run.start(), text.hex()])
            out.append([run.start() + len(text), f"ff*{tail}"])
        else:
            out.append([run.start(), text.hex()])
    return out


# ---- second guest --------------------------------------------------------------------------

ASSEMBLE = r"""
for i in 0 1 2 3 4 5 6 7; do truncate -s 16M /tmp/old$i /tmp/new$i; done
put() {
  k=0; while [ $k -lt $2 ]; do
    dd if=$OUT/in.$1.$k of=/tmp/$3$k bs=4096 seek=$4 conv=notrunc 2>/dev/null
    losetup /dev/loop$k /tmp/$3$k; k=$((k+1))
  done
}
take() { for d in $all; do losetup -d $d; done; }
ask() { # case, options
  echo "@@ $1 $2"
  mdadm -A -o /dev/md0 $2 $all 2>&1 </dev/null
  cd /sys/block/md0/md 2>/dev/null && { grep . array_state resync_start dev-*/slot dev-*/state 2>/dev/null; cd /; mdadm -S /dev/md0 >/dev/null 2>&1; }
}
case_() { # case, number of devices, which files, block of the superblock
  all=; for k in $(seq 0 $(($2-1))); do all="$all /dev/loop$k"; done
  put $*; ask $1; ask $1 --run; ask $1 --force; take
  # mdadm --force wrote to them.
  put $*; ask $1 "--force --run"; take
}
"""


def guest(kernel_md, script, tmp):
    with open(f"{tmp}/script", "w") as f:
        f.write(f"OUT=/host{tmp}\n{script}")
    dummy = f"{tmp}/dummy"
    with open(dummy, "w") as f:
        f.truncate(1 << 20)
    env = dict(os.environ, KERNEL_MD_S="3000")
    done = subprocess.run(kernel_md + [dummy, "--", f"sh /host{tmp}/script; true"], check=True, env=env, stdout=subprocess.PIPE)
    return done.stdout.decode(errors="replace")


def outcome(lines):
    started, devices, resync, forced, said = False, {}, [], [], []
    for line in lines:
        if m := re.match(r"dev-loop(\d+)/(slot|state):(.*)", line):
            devices.setdefault(m[1], {})[m[2]] = m[3]
        elif m := re.match(r"array_state:(.*)", line):
            started = m[1] in ("readonly", "read-auto", "clean", "active")
        elif m := re.match(r"resync_start:(\d+)", line):
            resync = [f"resync {m[1]}"]
        elif not line.startswith("resync_start:"):
            said.append(line.removeprefix("mdadm: ").removeprefix("/dev/md0 ").strip())
            if m := re.search(r"forcing event count in /dev/loop(\d+)", line):
                forced.append(f"forced {m[1]}")
            if m := re.search(r"clearing FAULTY flag for .* for /dev/loop(\d+)", line):
                forced.append(f"cleared {m[1]}")
    if not started:
        return f"refused: {said[-1] if said else ''}"

    def what(slot, state):
        if "faulty" in state:
            return "F"
        return "S" if slot == "none" else slot if "in_sync" in state else f"{slot}~"

    devices = [f"{number}:{what(**about)}" for number, about in sorted(devices.items())]
    return " ".join(devices + resync + sorted(set(forced)))


def build(kernel_md, tmp):
    said = guest(kernel_md, BUILD, tmp)
    if said:
        print(said, file=sys.stderr)


def prepare(tmp):
    """Each case with its superblocks, which are put where the second guest finds them."""
    todo, script = [], [ASSEMBLE]
    for name, devices, patches in cases():
        if not devices:
            continue
        real = [open(f"{tmp}/{d}", "rb").read() for d in devices]
        blobs = patched(real, patches)
        where = "old 4080" if is_old(blobs[0]) else "new 1"
        for k, blob in enumerate(blobs):
            with open(f"{tmp}/in.{len(todo)}.{k}", "wb") as f:
                f.write(blob)
        script.append(f"case_ {len(todo)} {len(blobs)} {where}")
        given = [d if a == b else [d, events(b)] for d, a, b in zip(devices, real, blobs)]
        todo.append((name, given, {}))
    return todo, "\n".join(script)


def sort_out(todo, text):
    """Outcomes from what the second guest said."""
    current, lines = None, []
    for line in text.splitlines() + ["@@ end"]:
        if not line.startswith("@@ "):
            lines.append(line)
            continue
        if current:
            todo[current[0]][2][current[1]] = outcome(lines)
        _, number, *options = line.split(" ")
        if number != "end":
            current, lines = (int(number), " ".join(o.removeprefix("--") for o in options if o)), []


def dump(**what):
    print(json.dumps(what, separators=(",", ":")))


def write(todo, tmp):
    used = {(g if isinstance(g, str) else g[0]) for _, given, _ in todo for g in given}
    firsts = {}
    for name in sorted(used):
        sb = open(f"{tmp}/{name}", "rb").read()
        state = name.rsplit(".", 1)[0]
        whole, like = runs(sb), None
        if state in firsts:
            first, of = firsts[state]
            part = runs(bytes(a ^ b for a, b in zip(sb, first)))
            if len(str(part)) < len(str(whole)):
                whole, like = part, of
        else:
            firsts[state] = sb, name
        dump(superblock=name, version="0.90" if is_old(sb) else "1.2", xor=like, runs=whole)
    for name, given, outcomes in todo:
        plain = outcomes[""]
        dump(case=name, members=given, outcomes={k: "=" if k and v == plain else v for k, v in outcomes.items()})


def main():
    kernel_md = sys.argv[1].split()
    with tempfile.TemporaryDirectory() as tmp:
        build(kernel_md, tmp)
        todo, script = prepare(tmp)
        sort_out(todo, guest(kernel_md, script, tmp))
        write(todo, tmp)


if __name__ == "__main__":
    main()
