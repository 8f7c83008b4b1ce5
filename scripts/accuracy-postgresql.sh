#!/usr/bin/env bash
# accuracy-postgresql.sh: PostgreSQL under pgbench on arrays whose members' latency is held, beside what is predicted.
#
# Four members are files in memory of which each read and write takes 4 ms, one after the other (scripts/held-disk.c).
# `lapstrake lab run` measures RAID1, RAID5 and RAID10 on them, `lapstrake predict` has the same plan with a profile that
# says just that. Needs root for mounts, loop devices, FUSE and PostgreSQL; ten minutes.
set -euo pipefail

lapstrake=$(realpath "${LAPSTRAKE:-target/release/lapstrake}")
here=$(realpath "$(dirname "$0")")
if [[ $EUID != 0 || ! -e /dev/fuse ]] || ! pkg-config --exists fuse3 || ! command -v pgbench >/dev/null; then
    echo "NOT RUN: PostgreSQL beside its prediction: needs root, /dev/fuse, libfuse3-dev and postgresql (make setup)"
    exit 0
fi
scratch=$(mktemp -d)
chmod 755 "$scratch"
members=()
finish() {
    for member in "${members[@]}"; do fusermount3 -u "$scratch/$member" || true; done
    rm -rf "$scratch"
}
trap finish EXIT
# shellcheck disable=SC2046
cc -O2 -o "$scratch/held-disk" "$here/held-disk.c" $(pkg-config --cflags --libs fuse3)
for member in a b c d; do
    mkdir "$scratch/$member"
    setsid "$scratch/held-disk" 671088640 4000 "$scratch/$member" >/dev/null 2>&1 </dev/null &
    members+=("$member")
    until [[ -e $scratch/$member/disk ]]; do sleep 0.1; done
done

figure() { echo "$1 = { value = $2, unit = \"$3\", source = \"scripts/held-disk.c\", confidence = \"measured\" }"; }
{
    printf 'name = "held-4ms"\nmodel = "scripts/held-disk.c"\nyear = 2026\nnote = "one command at a time, 4 ms each"\n'
    echo "[solid-disk]"
    figure capacity 1310720 sectors
    figure interface 10000.0 MB/s
    figure queue 1 commands
    figure units 1 units
    figure page 4096 blocks
    figure read 0.1 us
    figure read_command 4000.0 us
    figure write_command 4000.0 us
    figure write_accept 4000.0 us
    figure flush 50.0 us
    figure power_backed 1 flag
    figure program_wait 0.0 us
    figure read_rate 9000.0 MB/s
    figure fast_rate 9000.0 MB/s
    figure slow_rate 9000.0 MB/s
    figure fast_cells 0.6 GB
    figure buffer 64.0 MB
    figure amplification 1.0 bytes
    sed -n '/^\[reliability\]/,$p' "$here/../crates/model/profiles/ssd-sata-1tb.toml"
} >"$scratch/held.toml"
{
    printf 'name = "pgbench-held"\n[run]\nrepeats = %s\nrepeats-max = %s\n' "${ROUNDS:-3}" "${ROUNDS:-3}"
    printf '[machine]\nmemory = "%sk"\n' "$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)"
    for member in a b c d; do
        printf '[[disk]]\npath = "%s/disk"\nname = "%s"\nprofile = "held.toml"\nexpendable = true\n' "$member" "$member"
    done
    printf '[[array]]\nname = "%s"\nlevel = %s\nmembers = [%s]\nfilesystem = "ext4"\n' \
        raid1 1 '"a", "b"' raid5 5 '"a", "b", "c", "d"' raid10 10 '"a", "b", "c", "d"'
    for commit in on off; do
        printf '[[workload]]\nname = "%s"\nprogram = "pgbench"\nscale = 20\nclients = 8\ntime = "40s"\n' "$commit"
        printf 'configuration = """\nshared_buffers = 32MB\nmax_wal_size = 128MB\ncheckpoint_timeout = 30s\n'
        printf 'autovacuum = off\nsynchronous_commit = %s\n"""\n' "$commit"
    done
} >"$scratch/plan.toml"
cd "$scratch"
"$lapstrake" predict plan.toml --store predicted.sqlite --json >predicted.json
"$lapstrake" lab run --destroy plan.toml --store measured.sqlite >&2
"$lapstrake" lab export --store measured.sqlite --json >measured.json
python3 - predicted.json measured.json <<'PYTHON'
import json, statistics, sys

predicted = {
    (r["array"], r["workload"]): r["value"]
    for r in json.load(open(sys.argv[1]))["records"]
    if r["metric"] == "rate"
}
print("array    commit   measured  predicted   error  (tps, medians, without their beginnings)")
for case in json.load(open(sys.argv[2]))["experiments"][-1]["cases"]:
    array, load = case["subject"]["name"], case["workload"]["name"]
    rates = [p["settled_value"] for run in case["runs"] for p in run["phases"]]
    if not rates:
        print(f"{array:8} {load:6}  NOT RUN: no run succeeded")
        continue
    was, said = statistics.median(rates), predicted[array, load]
    print(f"{array:8} {load:6} {was:10.1f} {said:10.1f} {100 * (said / was - 1):+6.1f} %")
PYTHON
