#!/usr/bin/env bash
# accuracy.sh [TRACES] [CASES]: how far the models are from what was measured.
#
# Published figures of arrays, beside what is predicted of them (cargo xtask accuracy): the cases in cases/, and those of
# CASES, a directory of CSV files, beside what the shipped plans predict.
#
# Then fio and PostgreSQL are measured here, beside what is predicted (accuracy-fio.sh, accuracy-postgresql.sh), and so is
# the growth of arrays by a member (accuracy-growth.sh).
#
# TRACES: measured traces of disks, replayed on models made from the files beside them; the demerits are
# held against DiskSim's: at most 10 % above. For each NAME.trace in the directory there must be NAME.model,
# NAME.diskspecs and, if the model needs one, NAME.seek. The traces are part of DiskSim's distribution
# and not of this repository.
set -euo pipefail

lapstrake=${LAPSTRAKE:-target/release/lapstrake}
traces=${1:-}
cases=${2:-}
LAPSTRAKE=$(realpath "$lapstrake") cargo xtask accuracy ${cases:+"$cases"}
LAPSTRAKE=$lapstrake scripts/accuracy-fio.sh
LAPSTRAKE=$lapstrake scripts/accuracy-postgresql.sh
LAPSTRAKE=$lapstrake scripts/accuracy-growth.sh
if [[ -z $traces ]]; then
    echo "NOT RUN: disks against measured traces: no directory; make accuracy TRACES=DIR"
    exit 0
fi
shopt -s nullglob
found=("$traces"/*.trace)
if ((${#found[@]} == 0)); then
    echo "accuracy: $traces holds no *.trace" >&2
    exit 1
fi

# DiskSim's demerit in per cent of the measured mean (CMU-PDL-08-101 and the traces' README).
declare -A disksim=([atlas_III]=6.0 [cheetah4LP]=6.0 [ibm18es]=2.6 [hp_c2490a]=2.0)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
missed=0
for trace in "${found[@]}"; do
    name=$(basename "$trace" .trace)
    base=$traces/$name
    "$lapstrake" disk import --model "$base.model" --diskspecs "$base.diskspecs" \
        -o "$scratch/$name.toml" >/dev/null
    report=$("$lapstrake" disk replay "$scratch/$name.toml" "$trace")
    echo "$report"
    demerit=$(awk '/^ +full:/ { print $(NF - 1) }' <<<"$report")
    limit=$(awk -v d="${disksim[$name]:-}" 'BEGIN { if (d != "") print d * 1.1 }')
    if [[ -z $limit ]]; then
        echo "  no figure of DiskSim's to hold this against"
    elif awk -v a="$demerit" -v b="$limit" 'BEGIN { exit !(a <= b) }'; then
        echo "  at most $limit %: met (DiskSim ${disksim[$name]} %)"
    else
        echo "  at most $limit %: MISSED (DiskSim ${disksim[$name]} %)"
        missed=1
    fi
done
exit $missed
