#!/usr/bin/env python3
"""Makes create-VERSION.jsonl: what mdadm writes to new members, before any kernel starts the array.

    make.py KERNEL_MD [NUMBER...] > create-VERSION.jsonl

KERNEL_MD is a command that takes MEMBER_FILE... -- 'shell commands' and runs the commands in a
guest with the kernel's md, mdadm (4.2 of Debian 12 and 4.6 of sid made the vectors kept here) and the members as /dev/ubda,
/dev/ubdb, ...; the guest sees the host's files below /host.

With numbers only these batches (see `batches`) are made.

The personalities are unloaded first, so that RUN_ARRAY fails and nothing touches what mdadm
wrote. Each line is one case: the request, and for each member the bytes written at its start
and at its end, as runs of other than zero: [offset, hex], [offset, "byte*count"], or the number
of an equal run of the first member. (The members are zeroed before each case.) A missing member
is null, and a number stands for so many in a row.
"""
import json, os, subprocess, sys, tempfile

EDGE = 192 << 10  # bytes kept from each end of a member
LOGGED_EDGE = 1100 << 10  # with partial parity logs
JOURNAL_EDGE = 3 << 20  # the same where there is a journal, whose data begins with a block
MEMBER = "abcdefghijklmnop"


def case(level, n, version="1.2", **rest):
    return dict(level=level, disks=n, version=version, **rest)


def mdadm_args(c):
    a = ["-l", str(c["level"]), "-n", str(c["disks"])]
    a += ["-e", c["version"]] if c["version"] != "default" else []
    for key, opt in [("chunk_kib", "--chunk"), ("layout", "-p"), ("size_kib", "-z"), ("spares", "-x"),
                     ("homehost", "--homehost"), ("name", "-N"), ("uuid", "-u"),
                     ("data_offset_kib", "--data-offset")]:
        if key in c:
            a += [f"{opt}={c[key]}" if opt.startswith("--") else opt] + ([] if opt.startswith("--") else [str(c[key])])
    if "bitmap" in c:
        a += ["-b", "/bitmap" if c["bitmap"] == "external" else c["bitmap"]]
    if "policy" in c:
        a += ["-k", c["policy"]]
    if "bitmap_chunk_kib" in c:
        a += [f"--bitmap-chunk={c['bitmap_chunk_kib']}"]
    a += ["--assume-clean"] if c.get("assume_clean") else []
    a += ["-f"] if c.get("force") else []
    return a


def device_args(c, picked):
    """The devices for mdadm; a journal comes first."""
    names = ["missing" if p is None else f"/dev/ubd{MEMBER[p]}" for p in picked]
    return [f"--write-journal={names[0]}"] + names[1:] if c.get("journal") else names


def members(c, sizes):
    """Names for mdadm; sizes in sectors or None for the request."""
    count = c["disks"] + c.get("spares", 0) + (1 if c.get("journal") else 0)
    missing = c.get("missing", [])
    order = c.get("order", range(len(sizes)))
    free = iter(order)
    picked = [None if i in missing else next(free) for i in range(count)]
    return picked


def batches():
    K = 1 << 10
    M, G, T = K * K, K * K * K, K * K * K * K
    versions = ["1.2", "1.1", "1.0", "0.90"]

    equal = []
    for v in versions:
        equal += [case("linear", 3, v), case(1, 2, v), case(1, 3, v, spares=1), case(1, 2, v, missing=[1]),
                  case(1, 2, v, assume_clean=True), case(1, 2, v, bitmap="internal"),
                  case(1, 2, v, bitmap="internal", bitmap_chunk_kib=4),
                  case(1, 2, v, bitmap="internal", bitmap_chunk_kib=64),
                  case(1, 1, v, force=True)]
        for c in (4, 64, 512):
            equal += [case(0, 4, v, chunk_kib=c), case(5, 4, v, chunk_kib=c), case(10, 4, v, chunk_kib=c)]
        equal += [case(0, 2, v, chunk_kib=12), case(0, 2, v, chunk_kib=4096), case(0, 3, v, layout="dangerous"),
                  case("linear", 2, v, chunk_kib=64),
                  case(4, 3, v), case(4, 3, v, force=True), case(5, 4, v, spares=2), case(5, 4, v, missing=[1]),
                  case(5, 3, v, missing=[2]), case(5, 4, v, assume_clean=True), case(5, 4, v, force=True, spares=1),
                  case(5, 2, v), case(5, 4, v, layout="ra"), case(5, 4, v, layout="parity-first"),
                  case(5, 4, v, bitmap="internal"), case(5, 4, v, bitmap="internal", bitmap_chunk_kib=8),
                  case(6, 4, v), case(6, 5, v, missing=[1]), case(6, 5, v, missing=[4]), case(6, 5, v, missing=[0, 3]),
                  case(6, 4, v, missing=[3], spares=1), case(6, 4, v, missing=[0], spares=2),
                  case(6, 4, v, missing=[0], force=True),
                  case(6, 4, v, missing=[0], assume_clean=True), case(6, 5, v, spares=1, layout="left-symmetric-6"),
                  case(6, 5, v, layout="ddf-zero-restart", chunk_kib=64),
                  case(10, 4, v), case(10, 5, v, layout="f2"), case(10, 4, v, layout="o3", spares=1, chunk_kib=64),
                  case(10, 3, v, missing=[2], bitmap="internal"), case(10, 5, v, layout="n3", bitmap="internal"),
                  case(10, 4, v, layout="f2", bitmap="internal", bitmap_chunk_kib=4, chunk_kib=64),
                  case(5, 3, v, size_kib=10000), case(1, 2, v, size_kib=10001), case(10, 3, v, size_kib=20000, chunk_kib=64),
                  case(5, 3, v, homehost="nas", name="boot"), case(5, 3, v, homehost="nas", name="other:boot"),
                  case(1, 2, v, homehost="a-host-name-that-is-long", name="and-a-name-too"),
                  case(1, 2, v, homehost="nas", uuid="00112233:44556677:8899aabb:ccddeeff"),
                  case(1, 2, v, bitmap="external"), case(10, 3, v, bitmap="external"),
                  case(1, 2, v, bitmap="external", bitmap_chunk_kib=128), case(1, 2, v, bitmap="none"),
                  case(5, 3, v, data_offset_kib=8192), case(1, 2, v, data_offset_kib=1024, bitmap="internal"),
                  case(0, 3, v, data_offset_kib=16, chunk_kib=64), case(1, 2, v, data_offset_kib=12),
                  case(10, 8, v), case(6, 8, v), case(0, 8, v)]
    equal += [case(5, 4, "default"), case(1, 2, "default"), case(0, 2, "default"), case(10, 4, "default")]
    # refused by mdadm
    for v in versions:
        equal += [case(6, 3, v), case(5, 1, v), case(0, 1, v), case(1, 1, v), case(0, 3, v, missing=[1]), case("linear", 3, v, missing=[0]),
                  case(1, 2, v, missing=[0, 1]), case(1, 2, v, chunk_kib=64), case(10, 2, v, layout="n3"),
                  case(0, 2, v, bitmap="internal"), case(0, 2, v, spares=1), case(5, 4, v, layout="ddf-x"),
                  case(1, 2, v, bitmap="internal", bitmap_chunk_kib=1), case(1, 2, v, bitmap="internal", bitmap_chunk_kib=3),
                  case(5, 3, v, size_kib=100), case(5, 3, v, size_kib=1000000), case(5, 3, v, chunk_kib=2), case(5, 3, v, chunk_kib=5),
                  case(1, 2, v, size_kib=3), case(0, 3, v, layout="alternate"), case(0, 2, v, chunk_kib=65536)]
    yield [64 * M] * 8, equal

    mixed = []
    for v in versions:
        mixed += [case("linear", 6, v), case(0, 6, v), case(0, 4, v, chunk_kib=64), case(0, 4, v, chunk_kib=12), case(1, 3, v),
                  case(0, 3, v, layout="alternate"), case(0, 3, v, layout="dangerous"), case("linear", 4, v, chunk_kib=64),
                  case(5, 4, v, chunk_kib=16), case(6, 5, v), case(10, 3, v, layout="f3"),
                  case(5, 3, v, order=[3, 1, 0]), case(0, 2, v, order=[0, 6]), case(0, 2, v, order=[0, 7]),
                  case(0, 2, v, order=[0, 6], data_offset_kib=4096)]
    # odd sectors, unaligned sizes, and two that differ by less than a chunk
    yield [64 * M, 64 * M + 512, 70 * M + 7 * 512, 90 * M + 3 * K, 100 * M + 100 * K, 131 * M - 512, 64 * M + 64 * K, 64 * M + 4 * K], mixed

    for size in (20000 * K, 1 * G + 5 * 512, 10 * G, 60 * G, 101 * G, 120 * G, 201 * G, 300 * G, 900 * G, 3 * T, 8 * T):
        big = []
        for v in versions:
            big += [case(0, 2, v), case(0, 2, v, chunk_kib=4096), case(0, 2, v, chunk_kib=65536), case(1, 2, v),
                    case(1, 2, v, bitmap="internal"), case(5, 3, v), case(5, 3, v, chunk_kib=64, bitmap="internal"),
                    case(1, 2, v, bitmap="none"), case(1, 2, v, bitmap="internal", bitmap_chunk_kib=4096),
                    case(10, 3, v), case(10, 4, v, bitmap="internal"), case(10, 4, v, layout="f2", bitmap="internal", bitmap_chunk_kib=131072),
                    case(6, 4, v), case(6, 4, v, size_kib=104857600), case(6, 4, v, size_kib=104858112), case("linear", 2, v),
                    case(1, 2, v, bitmap="external"), case(5, 3, v, bitmap="external", bitmap_chunk_kib=16384)]
        yield [size] * 4, big

    tiny = []
    for v in versions:
        for order in ([0, 1], [2, 3], [4, 5], [6, 7]):
            tiny += [case(1, 2, v, order=order), case(0, 2, v, chunk_kib=4, order=order), case(5, 2, v, order=order, chunk_kib=4),
                     case("linear", 2, v, order=order), case(1, 2, v, order=order, bitmap="internal")]
    yield [11 * K, 12 * K, 64 * K, 127 * K + 512, 1 * M, 1100 * K, 2 * M + 512, 3 * M], tiny

    # The table of roles grows with the slots, whether devices hold them or not.
    many = []
    for v in versions:
        for n in (26, 27, 28, 127, 128, 129, 384, 385, 1919, 1920, 1921):
            many += [case(1, n, v, missing=range(2, n))]
        many += [case(1, 2, v, spares=n, missing=range(2, n + 1)) for n in (25, 26, 126, 127, 128, 1918, 1919)]
    yield [20000 * K] * 3, many

    # Partial parity logs.
    logged = []
    for v in versions:
        logged += [case(5, 4, v, policy="ppl"), case(5, 3, v, policy="ppl", chunk_kib=64, assume_clean=True),
                   case(5, 3, v, policy="ppl", missing=[2]), case(5, 3, v, policy="ppl", spares=1),
                   case(5, 3, v, policy="ppl", layout="parity-first"), case(5, 3, v, policy="ppl", size_kib=10000),
                   case(5, 3, v, policy="ppl", bitmap="none"), case(5, 3, v, policy="ppl", data_offset_kib=2048),
                   case(5, 3, v, policy="ppl", data_offset_kib=512), case(5, 3, v, policy="ppl", bitmap="internal"),
                   case(5, 3, v, policy="ppl", bitmap="external"), case(4, 3, v, policy="ppl"),
                   case(6, 4, v, policy="ppl"), case(1, 2, v, policy="ppl"), case(0, 2, v, policy="ppl"),
                   case(5, 3, v, policy="ppl", homehost="nas", uuid="00112233:44556677:8899aabb:ccddeeff"),
                   case(5, 3, v, policy="resync"), case(5, 3, v, policy="resync", bitmap="internal"),
                   case(5, 3, v, policy="bitmap"), case(5, 3, v, policy="bitmap", bitmap="internal"),
                   case(5, 3, v, policy="bitmap", bitmap="none"), case(0, 2, v, policy="resync"), case(1, 2, v, policy="resync")]
    yield [64 * M] * 4, logged
    yield [1 * M, 2 * M, 3 * M, 3 * M], [case(5, 2, v, policy="ppl", chunk_kib=4, order=o) for v in versions for o in ([1, 2], [2, 3])]
    yield [120 * G] * 3, [case(5, 3, v, policy=p) for v in versions for p in ("ppl", "resync", "bitmap")]
    journal = []
    for v in ("1.2", "1.1", "1.0"):
        journal += [case(4, 3, v, journal=True), case(5, 3, v, journal=True), case(5, 4, v, journal=True, spares=1),
                    case(5, 3, v, journal=True, assume_clean=True, chunk_kib=64), case(5, 3, v, journal=True, force=True),
                    case(5, 4, v, journal=True, missing=[2]), case(6, 4, v, journal=True), case(6, 5, v, journal=True, missing=[2]),
                    case(6, 4, v, journal=True, assume_clean=True, homehost="nas", name="boot"),
                    case(5, 3, v, journal=True, bitmap="internal"), case(1, 2, v, journal=True), case(10, 4, v, journal=True),
                    case(5, 3, v, journal=True, order=[7, 0, 1, 2]),
                    case(5, 3, v, journal=True, data_offset_kib=2048, assume_clean=True)]
    # (With 1.0 mdadm records more room than a small journal has.)
    journal += [case(5, 3, v, journal=True, order=[6, 0, 1, 2]) for v in ("1.2", "1.1")]
    journal += [case(5, 3, "0.90", journal=True)]
    yield [64 * M] * 6 + [20 * M, 300 * M], journal


def runs(data, base):
    """Runs of bytes other than zero, as [offset, hex]; a run may hold up to 15 zeros."""
    out, at = [], 0
    while at < len(data):
        if not any(data[at:at + 4096]):
            at += 4096
            continue
        if data[at] == 0:
            at += 1
            continue
        end, zeros = at, 0
        while end < len(data) and zeros < 16:
            zeros = 0 if data[end] else zeros + 1
            end += 1
        run = data[at:end - zeros] if zeros else data[at:end]
        same = len(run) > 64 and run == bytes([run[0]]) * len(run)
        head = run.rstrip(b"\xff") if len(run) - len(run.rstrip(b"\xff")) > 64 else run
        if same:
            out.append([base + at, f"{run[0]:02x}*{len(run)}"])
        elif head is not run:
            out.append([base + at, head.hex()])
            out.append([base + at + len(head), f"ff*{len(run) - len(head)}"])
        else:
            out.append([base + at, run.hex()])
        at = end
    return out


def shorten(members):
    """Replaces a run that the first member has too by its number there."""
    for runs in members[1:]:
        runs[:] = [members[0].index(run) if run in members[0] else run for run in runs]


def count_missing(members):
    """Replaces long stretches of missing members (null) by their number."""
    out = []
    for member in members:
        if member is None and out and isinstance(out[-1], int):
            out[-1] += 1
        elif member is None and out[-3:] == [None] * 3:
            out[-3:] = [4]
        else:
            out.append(member)
    return out


def guest_script(todo, sizes, out):
    say = ["for m in raid456 raid10 raid1 raid0 linear; do rmmod $m; done 2>/dev/null", f"cd /host{out}"]
    used = MEMBER[:len(sizes)]
    for i, c in enumerate(todo):
        picked = members(c, sizes)
        edge = LOGGED_EDGE if c.get("policy") == "ppl" else JOURNAL_EDGE if c.get("journal") else EDGE
        names = device_args(c, picked)
        say.append(f"rm -f /bitmap; mdadm -C /dev/md0 -q -R {' '.join(mdadm_args(c))} {' '.join(names)} >{i}.err 2>&1 </dev/null")
        say.append("mdadm -S /dev/md0 >/dev/null 2>&1")
        say.append(f"[ -e /bitmap ] && cp /bitmap {i}.bitmap")
        for m in used:
            size = sizes[MEMBER.index(m)]
            dev = f"/dev/ubd{m}"
            head, tail = min(size, edge), min(max(size - edge, 0), edge if c.get("journal") else edge + 512)
            # tail begins on a sector
            for what, skip, length in (("head", 0, head), ("tail", size - tail, tail)):
                bs = 4096 if skip % 4096 == 0 and length % 4096 == 0 else 512
                if length and MEMBER.index(m) in picked:
                    say.append(f"dd if={dev} of={i}.{m}.{what} bs={bs} skip={skip // bs} count={length // bs} 2>/dev/null")
                if length and MEMBER.index(m) in picked:
                    say.append(f"dd if=/dev/zero of={dev} bs={bs} seek={skip // bs} count={length // bs} conv=notrunc 2>/dev/null")
    return "\n".join(say)


def main():
    kernel_md = sys.argv[1].split()
    wanted = [int(number) for number in sys.argv[2:]]
    for number, (sizes, todo) in enumerate(batches()):
        if wanted and number not in wanted:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            files = []
            for i, size in enumerate(sizes):
                files.append(f"{tmp}/m{i}")
                with open(files[-1], "wb") as f:
                    f.truncate(size)
            out = f"{tmp}/out"
            os.mkdir(out)
            script = f"{out}/script"
            with open(script, "w") as f:
                f.write(guest_script(todo, sizes, out))
            env = dict(os.environ, KERNEL_MD_S="1500")
            subprocess.run(kernel_md + files + ["--", f"sh /host{script}; true"], check=True, env=env, stdout=sys.stderr)
            for i, c in enumerate(todo):
                picked = members(c, sizes)
                result, wrote = [], False
                for p in picked:
                    if p is None:
                        result.append(None)
                        continue
                    size, all_runs = sizes[p], []
                    for what in ("head", "tail"):
                        path = f"{out}/{i}.{MEMBER[p]}.{what}"
                        if os.path.exists(path):
                            data = open(path, "rb").read()
                            all_runs += runs(data, 0 if what == "head" else size - len(data))
                    wrote |= bool(all_runs)
                    result.append(dict(sectors=size // 512, runs=all_runs))
                line = {k: v for k, v in c.items() if k not in ("missing", "order")}
                line["members"] = result
                shorten([m["runs"] for m in result if m])
                if not wrote:
                    line["refused"] = open(f"{out}/{i}.err").read().strip()
                    for m in result:
                        m and m.pop("runs")
                line["members"] = count_missing(result)
                if os.path.exists(f"{out}/{i}.bitmap"):
                    data = open(f"{out}/{i}.bitmap", "rb").read()
                    line["external_bitmap"] = dict(bytes=len(data), runs=runs(data, 0))
                print(json.dumps(line, separators=(",", ":")))


main()
