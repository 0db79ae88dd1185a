#!/bin/sh
# disk.sh ROOT SIZE_MIB OUT.qcow2: a bootable disk of a root tree: MBR, one ext4 partition, extlinux.
# Runs in a mount namespace of its own (labkit/images.py), so the loop mount cannot stay behind.
set -eu
root=$1 size_mib=$2 out=$3
raw=$out.raw
mnt=$out.mnt
trap 'umount "$mnt" 2>/dev/null || true; rm -rf "$raw" "$mnt"' EXIT
truncate -s "${size_mib}M" "$raw"
printf 'start=2048,type=83,bootable\n' | sfdisk -q "$raw"
# extlinux reads neither 64bit nor metadata_csum file systems.
mke2fs -q -t ext4 -b 4096 -O ^64bit,^metadata_csum -L rootfs -d "$root" \
    -E offset=1048576 "$raw" "$((size_mib - 2))M"
mkdir -p "$mnt"
mount -o loop,offset=1048576 "$raw" "$mnt"
extlinux --install "$mnt/boot/extlinux" >/dev/null 2>&1
umount "$mnt"
dd if=/usr/lib/EXTLINUX/mbr.bin of="$raw" bs=440 count=1 conv=notrunc status=none
qemu-img convert -O qcow2 "$raw" "$out"
