#!/usr/bin/env bash
# guest.sh: makes a small Linux to be booted by QEMU below target/guest, for tests of arrays as disks of virtual machines:
# `linux`, the kernel of Debian's cloud images, and `initrd`, with busybox, e2fsprogs and virtio's modules, which runs
# /script and says how it ended. Nothing of the system changes, and no root is needed. Does nothing, quickly, when all is
# there; says aloud what it cannot get: tests that need it say so themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "guest: $*" >&2; }

guest=${CARGO_TARGET_DIR:-target}/guest
# What it is made by.
stamp=$(sha256sum "$0")
[ "$(cat "$guest/stamp" 2>/dev/null)" != "$stamp" ] || exit 0
[ "$(dpkg --print-architecture)" = amd64 ] || { say "only for x86-64"; exit 0; }
for program in busybox apt-get apt-cache mke2fs e2fsck ldd; do
    PATH=$PATH:/sbin:/usr/sbin command -v "$program" >/dev/null || { say "$program is not installed"; exit 0; }
done
mkdir -p "$guest"
guest=$(realpath "$guest")
work=$(mktemp -d "$guest/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Debian's kernel of this release, whatever its version is today; apt verifies it by the release's signature.
package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
    sed -n 's/.*Depends: \(linux-image-.*\)/\1/p' | head -n 1) || package=
(cd "$work" && apt-get -o APT::Sandbox::User="" download -qq "${package:-linux-image-cloud-amd64}") ||
    { say "cannot get Debian's linux-image-cloud-amd64"; exit 0; }
dpkg -x "$work"/linux-image-*.deb "$work/linux"

root=$work/root
mkdir -p "$root"/{bin,sbin,proc,sys,dev,mnt,tmp,modules}
cp "$(command -v busybox)" "$root/bin/busybox"
for program in mke2fs e2fsck; do
    path=$(PATH=$PATH:/sbin:/usr/sbin command -v "$program")
    cp "$path" "$root/sbin/"
    ldd "$path" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root${library%/*}"
        cp -L "$library" "$root$library"
    done
done
number=0
for module in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
    find "$work/linux/lib" -name "$module.ko" -exec cp {} "$root/modules/$((number += 1))-$module.ko" \;
done
cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
# Before the applets of the same names.
export PATH=/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module"; done
echo 1 >/proc/sys/kernel/printk
(. /script) 2>&1
echo "<<guest ended with $?"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/initrd"
cp "$work"/linux/boot/vmlinuz-* "$guest/linux"
mv "$work/initrd" "$guest/initrd"
echo "$stamp" >"$guest/stamp"
