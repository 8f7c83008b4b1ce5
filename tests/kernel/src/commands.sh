# What every script has besides programs. Functions, since a program takes longer to start than most of what is done.

# nap SECONDS: sleeps.
nap() { read -rt "$1" <>/run/nap || :; }

# attach FILE...: makes loop devices of host files (host paths) and prints their names.
attach() {
    local - file number=0
    set +e
    # Pages that the guest still holds of a file may be older than the file.
    echo 3 >/proc/sys/vm/drop_caches
    for file in "$@"; do
        while [ -d /sys/block/loop$number/loop ]; do number=$((number + 1)); done
        # Asking for a free one makes it.
        [ -b /dev/loop$number ] || losetup -f >/dev/null
        losetup /dev/loop$number "/host$file" || return
        echo /dev/loop$number
    done
}

# calm: stops every array, frees every loop device; all that was written is then on the host. Fails if one stays.
calm() {
    local - array device
    set +e
    for array in /dev/md[0-9]* /dev/md_*; do
        case $array in *p[0-9]*) continue ;; esac
        [ -b "$array" ] && mdadm --quiet --stop "$array"
    done
    for device in /sys/block/loop*/loop; do
        [ -d "$device" ] || continue
        device=${device%/loop}
        losetup -d "/dev/${device##*/}"
    done
    sync
    [[ $(</proc/mdstat) != *' : '*active* ]] && ! compgen -G '/sys/block/loop*/loop' >/dev/null
}

# scrub ARRAY: runs md's own check to its end and prints how many sectors do not match.
scrub() {
    local md action mismatches
    md=$(readlink -f "$1")
    md=/sys/block/${md##*/}/md
    echo check >"$md/sync_action" || return
    # The action reads "check" from the moment it is asked for, so idle means done.
    until read -r action <"$md/sync_action" && [ "$action" = idle ]; do nap 0.01; done
    read -r mismatches <"$md/mismatch_cnt"
    echo "$mismatches"
}
