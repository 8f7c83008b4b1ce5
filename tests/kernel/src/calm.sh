#!/sbin/bash
# calm: stops every array, frees every loop device; all that was written is then on the host.
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
