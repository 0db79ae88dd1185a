#!/bin/sh
# debian-root.sh OUT.tar MIRROR [APT-OPTION...]: the root tree of a Debian 12 cloud image: systemd, cloud-init, own kernel.
set -eu
out=$1 mirror=$2
shift 2
include=systemd-sysv,dbus,udev,cloud-init,cloud-guest-utils,iproute2,python3,busybox
include=$include,initramfs-tools,linux-image-cloud-amd64,ca-certificates
mmdebstrap --quiet --variant=minbase --include="$include" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/etc/kernel"' \
    --essential-hook='printf "MODULES=list\nCOMPRESS=gzip\n" >"$1/etc/initramfs-tools/conf.d/cloud"' \
    --essential-hook='printf "virtio_pci\nvirtio_blk\nvirtio_net\next4\n" >"$1/etc/initramfs-tools/modules"' \
    "$@" bookworm "$out" "$mirror"
