# held-members.sh: members whose latency is held, for the scripts that source this one.
#
# held_members BYTES MICROSECONDS [NAME]... makes a scratch directory ($scratch, taken away at the end), files in memory there
# (a, b, c and d) of which each read and write takes so long, one after the other (held-disk.c), and a profile that says just
# that; held_disks prints the plan's text for them. Needs root, /dev/fuse and libfuse3-dev.

members=()
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")

finish() {
    for member in "${members[@]}"; do fusermount3 -u "$scratch/$member" || true; done
    rm -rf "$scratch"
}

held_members() {
    scratch=$(mktemp -d)
    chmod 755 "$scratch"
    trap finish EXIT
    # shellcheck disable=SC2046
    cc -O2 -o "$scratch/held-disk" "$here/held-disk.c" $(pkg-config --cflags --libs fuse3)
    local names=("${@:3}")
    [[ ${#names[@]} -gt 0 ]] || names=(a b c d)
    # Before all others: they do next to nothing, and hold their time on a busy machine, too.
    local first=(chrt --fifo 1)
    if ! "${first[@]}" true 2>/dev/null; then
        echo "members do not run before others here (CAP_SYS_NICE), and take longer on a busy machine"
        first=()
    fi
    for member in "${names[@]}"; do
        mkdir "$scratch/$member"
        setsid "${first[@]}" "$scratch/held-disk" "$1" "$2" "$scratch/$member" >/dev/null 2>&1 </dev/null &
        members+=("$member")
        until [[ -e $scratch/$member/disk ]]; do sleep 0.1; done
    done
    held_profile "$1" "$2" >"$scratch/held.toml"
}

held_profile() {
    figure() { echo "$1 = { value = $2, unit = \"$3\", source = \"scripts/held-disk.c\", confidence = \"measured\" }"; }
    printf 'name = "held"\nmodel = "scripts/held-disk.c"\nyear = 2026\nnote = "one command at a time, %s us each"\n' "$2"
    echo "[solid-disk]"
    figure capacity $(($1 / 512)) sectors
    figure interface 10000.0 MB/s
    figure queue 1 commands
    figure units 1 units
    figure page 4096 blocks
    figure read 0.1 us
    figure read_command "$2.0" us
    figure write_command "$2.0" us
    figure write_accept "$2.0" us
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
}

# The plan's disks.
held_disks() {
    for member in "${members[@]}"; do
        printf '[[disk]]\npath = "%s/disk"\nname = "%s"\nprofile = "held.toml"\nexpendable = true\n' "$member" "$member"
    done
}

# Predicts and measures $scratch/plan.toml; prints both beside each other.
held_beside() {
    cd "$scratch"
    "$lapstrake" predict plan.toml --draws 1 --store predicted.sqlite --json >predicted.json
    "$lapstrake" lab run --destroy plan.toml --store measured.sqlite >&2
    for store in predicted measured; do
        "$lapstrake" lab export --store $store.sqlite --json >$store.json
    done
    python3 "$here/held-beside.py" predicted.json measured.json
}
