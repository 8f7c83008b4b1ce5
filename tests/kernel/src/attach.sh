#!/sbin/bash
# attach FILE...: makes loop devices of host files (host paths) and prints their names.
# Pages that the guest still holds of a file may be older than the file, so they are dropped.
echo 3 >/proc/sys/vm/drop_caches
for file in "$@"; do
    device=$(losetup -f) && losetup "$device" "/host$file" || exit 1
    echo "$device"
done
