# Words for scripts about one array, /dev/md0. A script that begins with them ends with the array
# stopped and all that was written on the host.
set -e
md=/sys/block/md0/md
trap finish EXIT

finish() {
    local status=$?
    # It may be stopped, and its names may not be gone yet: what counts is that it is not there.
    mdadm --quiet --stop /dev/md0 2>/dev/null || :
    [[ $(</proc/mdstat) != *md0* ]] || { echo "md0 does not stop"; status=1; }
    # What a reshape was slowed down to.
    echo 1000 >/proc/sys/dev/raid/speed_limit_min
    echo 200000 >/proc/sys/dev/raid/speed_limit_max
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
        nap 0.01
    done
}

# matches: redundancy agrees with the data everywhere.
matches() {
    local action mismatches
    echo check >$md/sync_action
    until read -r action <$md/sync_action && [ "$action" = idle ]; do nap 0.005; done
    read -r mismatches <$md/mismatch_cnt
    [ "$mismatches" = 0 ] || { echo "check counts $mismatches mismatched sectors"; exit 1; }
}

# healthy: every superblock has a right checksum, says clean and calls all members active.
healthy() {
    local all=${#devices[@]} right=0 clean=0 active=0 letters line
    letters=$(printf '%*s' $all '')
    letters=${letters// /A}
    mdadm --examine ${devices[@]} >/tmp/examine.log
    while read -r line; do
        case $line in
        'Checksum : '*' - correct') right=$((right + 1)) ;;
        'State : clean') clean=$((clean + 1)) ;;
        # 0.90 counts them, 1.x has a letter for each.
        "Active Devices : $all" | "Array State : $letters "*) active=$((active + 1)) ;;
        esac
    done </tmp/examine.log
    [ "$right $clean $active" = "$all $all $all" ] && return
    echo "of $all members $right with right checksums, $clean clean, $active that call all active:"
    cat /tmp/examine.log
    exit 1
}

# lacks N...: these of the devices, and no others, are no active members.
lacks() {
    local number expected found
    for number in "${!devices[@]}"; do
        case " $* " in *" $number "*) expected=out ;; *) expected=in_sync ;; esac
        found=out
        # One that the kernel is just letting go of has the file still, but no state in it (ENODEV).
        [ ! -e $md/dev-${devices[number]##*/}/state ] ||
            read -r found <$md/dev-${devices[number]##*/}/state || found=out
        [ "${found%%,*}" = $expected ] ||
            { echo "member $number is $found, not $expected"; cat /proc/mdstat; exit 1; }
    done
}

# waiting COMMAND...: what it starts begins nothing until it is written to.
waiting() {
    echo 1 >/sys/module/md_mod/parameters/start_ro
    "$@"
    echo 0 >/sys/module/md_mod/parameters/start_ro
}

# reach SECTOR COMMAND...: lets run that far what the command begins; there it waits, for the script's end.
reach() {
    local completed
    echo $1 >$md/sync_max
    "${@:2}"
    until read -r completed _ <$md/sync_completed && [ "${completed/none/0}" -ge $1 ]; do
        nap 0.01
    done
}

# thaw: what is frozen goes on.
thaw() { echo idle >$md/sync_action; }

# part SECTORS: three tenths of it, in whole chunks, and at least one. (A recovery that is stopped before its first sector
# leaves a recovery offset of 3 in Linux 7.2, which takes its word for "active" for a number of sectors.)
part() {
    local chunk part=$(($1 * 3 / 10))
    read -r chunk <$md/chunk_size
    chunk=$((chunk > 0 ? chunk / 512 : 128))
    part=$((part - part % chunk))
    echo $((part > 0 ? part : chunk))
}

# reshape_part COMMAND...: begins a reshape, and lets some of it be done, but not all: it is slow up to the script's end.
reshape_part() {
    local limit limits=(/proc/sys/dev/raid/speed_limit_{min,max}) patience=1000 done=0
    for limit in ${limits[@]}; do echo 2000 >$limit; done
    quietly "$@"
    # What is in flight counts, whether or not the position is on record.
    until [ "$done" -ge 2048 ]; do
        patience=$((patience - 1))
        [ $patience -gt 0 ] || { echo "no reshape comes so far:"; cat /proc/mdstat; exit 1; }
        nap 0.02
        done=$(sed -n 's/.*reshape = *[0-9.]*% (\([0-9]*\)\/.*/\1/p' /proc/mdstat)
        done=${done:-0}
    done
}

# rests: waits until superblocks say clean.
rests() { until [ "$(<$md/array_state)" = clean ]; do nap 0.01; done; }

# carried FIELD DEVICE...: sectors that each has given (2) or taken (6) so far.
carried() {
    local device stat
    for device in "${@:2}"; do
        stat=($(</sys/block/${device##*/}/stat))
        echo ${stat[$1]}
    done
}

# span: the sectors that a resync goes through.
span() {
    local size
    # RAID10 counts the array's.
    case $(<$md/level) in
    raid10) read -r size </sys/block/md0/size ;;
    *) read -r size <$md/component_size && size=$((size * 2)) ;; # KiB
    esac
    echo $size
}

# recover_part N...: gives the array these devices to recover, and lets a part of that be done.
recover_part() {
    local number size
    echo frozen >$md/sync_action
    for number in "$@"; do quietly mdadm /dev/md0 --add ${devices[number]}; done
    read -r size <$md/component_size
    reach $(part $((size * 2))) thaw
}

# resync_part OPTION...: makes an array of the devices, which are not in sync, and lets a part of them be.
resync_part() {
    quietly mdadm --create /dev/md0 --run --assume-clean "$@" ${devices[@]}
    quietly mdadm --stop /dev/md0
    waiting quietly mdadm --assemble /dev/md0 --update=resync ${devices[@]}
    reach $(part $(span)) quietly mdadm --readwrite /dev/md0
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
