#!/usr/bin/env bash
# accuracy-growth.sh: arrays on members whose latency is held get one more member, and a rebuild, beside what is predicted.
#
# Members are files in memory of which each read and write takes 20 ms, one after the other (scripts/held-disk.c).
# `lapstrake grow` moves all data while nobody asks for any, `lapstrake predict` has the same arrays with a profile that says
# just that. Needs root for FUSE; six minutes.
set -euo pipefail

lapstrake=$(realpath "${LAPSTRAKE:-target/release/lapstrake}")
# shellcheck source=scripts/held-members.sh
source "$(dirname "$0")/held-members.sh"
if [[ $EUID != 0 || ! -e /dev/fuse ]] || ! pkg-config --exists fuse3; then
    echo "NOT RUN: growth beside its prediction: needs root, /dev/fuse and libfuse3-dev (make setup)"
    exit 0
fi
held_members 134217728 20000 a b c d e
export LAPSTRAKE_RUN_DIR=$scratch/run
trap '"$lapstrake" stop grown >/dev/null 2>&1 || true; finish' EXIT
cd "$scratch"

# Name, level, members, chunk.
cases=("raid5 5 3 512" "raid5-of-64K 5 3 64" "raid6 6 4 128" "raid10 10 4 512")
{
    printf 'name = "growth-held"\n'
    held_disks
    for case in "${cases[@]}"; do
        read -r name level count chunk <<<"$case"
        printf '[[array]]\nname = "%s"\nlevel = %s\nmembers = [%s]\nchunk = "%sK"\nbitmap = "none"\n' "$name" "$level" \
            "$(printf '"%s", ' a b c d | cut -d, -f"1-$count")" "$chunk"
    done
    printf '[[workload]]\nname = "read"\npattern = "sequential"\nblock = "1M"\n'
} >plan.toml
"$lapstrake" predict --draws 1 plan.toml --store predicted.sqlite --json >predicted.json

# Says how long what is waited for has taken since `began`, and was to take.
row() {
    "$lapstrake" wait grown >/dev/null
    python3 - "$name" "$1" "$began" "$(date +%s.%N)" <<'PYTHON'
import json, sys

name, run, began, ended = *sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4])
records = json.load(open("predicted.json"))["records"]
said = [r["value"] for r in records if (r["array"], r["workload"]) == (name, run)][0]
print(f"{name:14} {run:18} {ended - began:9.1f} {said:10.1f} {100 * (said / (ended - began) - 1):+6.1f} %")
PYTHON
}

echo "array          run                 measured  predicted   error  (seconds)"
for case in "${cases[@]}"; do
    read -r name level count chunk <<<"$case"
    all=(a/disk b/disk c/disk d/disk e/disk)
    last=$scratch/${all[count - 1]}
    "$lapstrake" create grown --force --level "$level" --chunk "$chunk" --bitmap none --assume-clean "${all[@]:0:count}" \
        >/dev/null 2>&1
    "$lapstrake" serve --daemon --name grown --shards 2 "${all[@]:0:count}" >/dev/null 2>&1
    "$lapstrake" fail grown "$last" >/dev/null 2>&1
    "$lapstrake" remove grown "$last" >/dev/null
    began=$(date +%s.%N)
    "$lapstrake" add grown --force "$last" >/dev/null
    row rebuild
    # To look at a new member takes many short reads.
    "$lapstrake" add grown --force "$scratch/${all[count]}" >/dev/null
    began=$(date +%s.%N)
    "$lapstrake" grow grown --raid-devices $((count + 1)) >/dev/null
    row "growth by a member"
    "$lapstrake" stop grown >/dev/null
done
