#!/usr/bin/env bash
# accuracy-fio.sh: fio on a member and on arrays of members whose latency is held, beside what is predicted of the very
# same job file. Needs root, FUSE and fio; six minutes.
set -euo pipefail

lapstrake=$(realpath "${LAPSTRAKE:-target/release/lapstrake}")
# shellcheck source=scripts/held-members.sh
source "$(dirname "$0")/held-members.sh"
if [[ $EUID != 0 || ! -e /dev/fuse ]] || ! pkg-config --exists fuse3 || ! command -v fio >/dev/null; then
    echo "NOT RUN: fio beside its prediction: needs root, /dev/fuse, libfuse3-dev and fio (make setup)"
    exit 0
fi
# Long enough that what a busy machine adds to each request is little beside it.
held_members 268435456 20000
cat >"$scratch/job.fio" <<'JOB'
[global]
direct=1
ioengine=libaio
size=100m
time_based
ramp_time=1
runtime=6
group_reporting

[randread]
rw=randread
iodepth=4

[mix]
stonewall
rw=randrw
rwmixread=70
bssplit=4k/70:16k/30
iodepth=4
numjobs=2

[stream]
stonewall
rw=write
bs=256k
iodepth=4

[flushed]
stonewall
ioengine=psync
rw=randwrite
fsync=1

[once]
stonewall
time_based=0
ramp_time=0
runtime=0
rw=write
bs=1m
size=50m
JOB
{
    printf 'name = "fio-held"\n[run]\nrepeats = %s\nrepeats-max = %s\n' "${ROUNDS:-1}" "${ROUNDS:-1}"
    held_disks
    printf '[[array]]\nname = "disk"\nsystem = "disk"\nmembers = ["a"]\n'
    printf '[[array]]\nname = "%s"\nlevel = %s\nmembers = ["a", "b", "c", "d"]\nover = "fuse"\n' raid0 0 raid5 5 raid10 10
    printf '[[workload]]\nname = "fio"\nprogram = "fio"\njob-file = "job.fio"\n'
} >"$scratch/plan.toml"
held_beside
