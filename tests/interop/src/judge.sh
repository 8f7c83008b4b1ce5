# What the guest's scripts share. Every script begins with it, and ends with the array stopped and
# all that was written on the host.
set -e
md=/sys/block/md0/md
trap finish EXIT

finish() {
    local status=$?
    # It may be stopped, and its names may not be gone yet: what counts is that it is not there.
    mdadm --quiet --stop /dev/md0 2>/dev/null || :
    [[ $(</proc/mdstat) != *md0* ]] || { echo "md0 does not stop"; status=1; }
    sync
    exit $status
}

# show FILE...: makes devices of host files; the array devices has their names in order. The devices
# stay for the next script that shows the same files, which may have changed meanwhile.
show() {
    local shown
    [ ! -e /tmp/shown ] || read -r shown </tmp/shown
    if [ "$shown" = "$*" ]; then
        echo 3 >/proc/sys/vm/drop_caches
    else
        calm
        attach "$@" >/tmp/devices
        echo "$*" >/tmp/shown
    fi
    devices=($(</tmp/devices))
}

# quietly ...: runs a command that is heard only if it fails.
quietly() { "$@" >/tmp/quietly.log 2>&1 || { echo "$*:"; cat /tmp/quietly.log /proc/mdstat; exit 1; }; }

# settle: waits until no member is under recovery and no resync is due.
settle() {
    local patience=3000 action degraded resync
    while :; do
        read -r action <$md/sync_action
        read -r degraded <$md/degraded
        read -r resync <$md/resync_start
        [ "$action $degraded $resync" = 'idle 0 none' ] && return
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { echo "never settled:"; cat /proc/mdstat; exit 1; }
        usleep 10000
    done
}

# matches: redundancy agrees with the data everywhere.
matches() {
    local action mismatches
    echo check >$md/sync_action
    until read -r action <$md/sync_action && [ "$action" = idle ]; do usleep 5000; done
    read -r mismatches <$md/mismatch_cnt
    [ "$mismatches" = 0 ] || { echo "check counts $mismatches mismatched sectors"; exit 1; }
}

# lacks N...: these of the devices, and no others, are no active members.
lacks() {
    local number expected found
    for number in "${!devices[@]}"; do
        case " $* " in *" $number "*) expected=out ;; *) expected=in_sync ;; esac
        found=out
        [ ! -e $md/dev-${devices[number]##*/}/state ] ||
            read -r found <$md/dev-${devices[number]##*/}/state
        [ "${found%%,*}" = $expected ] ||
            { echo "member $number is $found, not $expected"; cat /proc/mdstat; exit 1; }
    done
}

# recover_half N...: gives the array these devices to recover, and stops it when they are half done.
recover_half() {
    local number size chunk half completed
    echo frozen >$md/sync_action
    for number in "$@"; do quietly mdadm /dev/md0 --add ${devices[number]}; done
    read -r size <$md/component_size # KiB, so half of it is as many sectors
    read -r chunk <$md/chunk_size
    half=$((chunk > 0 ? size - size % (chunk / 512) : size))
    echo $half >$md/sync_max
    echo idle >$md/sync_action
    until read -r completed _ <$md/sync_completed && [ "${completed/none/0}" -ge $half ]; do
        usleep 10000
    done
    quietly mdadm --stop /dev/md0
}

# dump FILE: the array's contents go to a host file.
dump() { dd if=/dev/md0 of="/host$1" bs=1M status=none; }

# fill FILE: writes as much of a host file as the array takes, and prints how many bytes it is.
fill() {
    local sectors
    read -r sectors </sys/block/md0/size
    echo $((sectors * 512))
    dd if="/host$1" of=/dev/md0 bs=1M iflag=count_bytes,fullblock count=$((sectors * 512)) \
        conv=fsync status=none
}

# poke FILE SECTOR COUNT [direct]: writes that part of a host file to the same place, at once.
# Direct writes go round the cache, which would make whole pages of them.
poke() {
    dd if="/host$1" of=/dev/md0 bs=$(($3 * 512)) count=1 status=none conv=notrunc \
        iflag=skip_bytes,fullblock skip=$(($2 * 512)) oflag=seek_bytes${4:+,$4} seek=$(($2 * 512))
}
