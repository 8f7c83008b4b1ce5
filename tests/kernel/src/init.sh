#!/sbin/bash
# The guest's first process: makes the machine ready, then runs numbered scripts on request.
# KMD_DIR (from the kernel's command line) is the host directory that holds scripts and results.
export PATH=/sbin:/bin HOME=/tmp MDADM_NO_UDEV=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /tmp
mkdir -p /run/mdadm
# To wait at: nobody ever writes to it.
mkfifo /run/nap
for module in /lib/modules/*.ko; do insmod "$module"; done 2>/run/insmod.log
echo 0 >/proc/sys/kernel/printk
# Arrays are built and stopped by the hundred here: do not hold resync back.
echo 1000000 >/proc/sys/dev/raid/speed_limit_min
echo 1000000 >/proc/sys/dev/raid/speed_limit_max
mount -t hostfs none /host ||
    echo '<<kernel-md nohostfs'
. /lib/commands.sh
cd /tmp
echo '<<kernel-md ready'
while read -r word; do
    [ "$word" = quit ] && break
    base=/host$KMD_DIR/$word
    # In a fork of this shell: to start another takes as long as several small programs.
    (. "$base.sh") >"$base.out" 2>"$base.err" </dev/null
    echo "<<kernel-md done $word $?"
done
cd /
calm
sync
poweroff -f
