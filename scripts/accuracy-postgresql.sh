#!/usr/bin/env bash
# accuracy-postgresql.sh: PostgreSQL under pgbench on arrays whose members' latency is held, beside what is predicted.
#
# `lapstrake lab run` measures RAID1, RAID5 and RAID10 on them, `lapstrake predict` has the same plan. Needs root for
# mounts, loop devices, FUSE and PostgreSQL; a quarter of an hour for each of ROUNDS (1). Transactions a second over the whole time: what comes before
# the first checkpoint is a fifth of it, and no beginning to be left out.
set -euo pipefail

lapstrake=$(realpath "${LAPSTRAKE:-target/release/lapstrake}")
# shellcheck source=scripts/held-members.sh
source "$(dirname "$0")/held-members.sh"
if [[ $EUID != 0 || ! -e /dev/fuse ]] || ! pkg-config --exists fuse3 || ! command -v pgbench >/dev/null; then
    echo "NOT RUN: PostgreSQL beside its prediction: needs root, /dev/fuse, libfuse3-dev and postgresql (make setup)"
    exit 0
fi
# Long enough that what a busy machine adds to each request is little beside it.
held_members 671088640 20000
{
    printf 'name = "pgbench-held"\n[run]\nrepeats = %s\nrepeats-max = %s\n' "${ROUNDS:-1}" "${ROUNDS:-1}"
    printf '[machine]\nmemory = "%sk"\n' "$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)"
    held_disks
    printf '[[array]]\nname = "%s"\nlevel = %s\nmembers = [%s]\nfilesystem = "ext4"\n' \
        raid1 1 '"a", "b"' raid5 5 '"a", "b", "c", "d"' raid10 10 '"a", "b", "c", "d"'
    for commit in on off; do
        printf '[[workload]]\nname = "%s"\nprogram = "pgbench"\nscale = 20\nclients = 8\ntime = "90s"\n' "$commit"
        printf 'configuration = """\nshared_buffers = 32MB\nmax_wal_size = 128MB\ncheckpoint_timeout = 30s\n'
        printf 'autovacuum = off\nsynchronous_commit = %s\n"""\n' "$commit"
    done
} >"$scratch/plan.toml"
held_beside
