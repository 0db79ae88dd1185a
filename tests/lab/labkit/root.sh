#!/bin/bash
# A root of layers, and a program in it. Runs in a mount namespace of its own, so nothing of it
# stays behind. Layers are overlayfs: LOWER is "top:...:bottom", UPPER a folder with upper/ and work/.
#
#   root.sh chroot ROOT LOWER UPPER COMMAND...   a command with this machine's network and processes
#   root.sh init ROOT LOWER UPPER NAME           process 1 of a node, in namespaces of its own
set -eu
mode=$1 root=$2 lower=$3 upper=$4
shift 4
mount --make-rprivate /
mkdir -p "$root" "$upper"
[ -z "${IN_MEMORY:-}" ] || mount -t tmpfs tmpfs "$upper"
mkdir -p "$upper/upper" "$upper/work"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper/upper,workdir=$upper/work" "$root"

small_dev() {
    mount -t tmpfs -o mode=755,size=1m tmpfs "$root/dev"
    mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
    for device in null zero full random urandom tty fuse net/tun; do
        [ -e "/dev/$device" ] || continue
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
    mount -t devpts devpts "$root/dev/pts" -o newinstance,ptmxmode=0666,mode=620,gid=5
    ln -s pts/ptmx "$root/dev/ptmx"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
}

# From here on there is nothing but the root.
leave() {
    cd "$root"
    mkdir -p mnt
    pivot_root . mnt
    umount -l /mnt
}

if [ "$mode" = chroot ]; then
    # By the first process's root, packages' scripts know that they are not to touch the machine.
    mount --rbind /proc "$root/proc"
    if [ "${WHOLE_DEV:-}" ]; then mount --rbind /dev "$root/dev"; else small_dev; fi
    mount --rbind /sys "$root/sys"
    if [ -e /etc/resolv.conf ]; then
        rm -f "$root/etc/resolv.conf"
        cat /etc/resolv.conf >"$root/etc/resolv.conf"
    fi
    IFS=$'\n' # paths may have spaces
    for path in ${BINDS:-}; do
        mkdir -p "$root$path"
        mount --rbind "$path" "$root$path"
    done
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mkdir -p "$root/run/lock"
    for pair in ${READ_ONLY:-}; do
        mkdir -p "$root${pair#*:}"
        mount --bind "${pair%%:*}" "$root${pair#*:}"
        mount -o remount,bind,ro "$root${pair#*:}"
    done
    IFS=$' \t\n'
    # This machine's way to its package index; a root made in such a root has it from there.
    pip_conf=${PIP_CONFIG_FILE:-/etc/pip.conf} ca=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
    if [ -e "$pip_conf" ]; then
        cp "$pip_conf" "$root/run/pip.conf"
        export PIP_CONFIG_FILE=/run/pip.conf
    fi
    if [ -e "$ca" ]; then
        cp -L "$ca" "$root/run/ca.crt"
        export PIP_CERT=/run/ca.crt SSL_CERT_FILE=/run/ca.crt REQUESTS_CA_BUNDLE=/run/ca.crt
    fi
    leave
    cd "${WORKDIR:-/}"
    unset BINDS READ_ONLY WORKDIR WHOLE_DEV IN_MEMORY
    exec "$@"
fi

name=$1
if [ -d "$SEED" ]; then
    cp -a --no-preserve=ownership "$SEED/." "$root/"
    if [ -e "$root/first-boot" ]; then
        chroot "$root" /bin/sh /first-boot >/dev/null
        rm "$root/first-boot"
    fi
    rm -rf "$SEED"
fi
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
# What belongs to the whole machine is read-only, as in any container; the network is the node's.
mount --bind "$root/sys/devices/virtual/net" "$root/sys/devices/virtual/net"
mount -o remount,bind,ro "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
cat /proc/sys/kernel/random/uuid >"$root/run/boot-id"
mount --bind "$root/run/boot-id" "$root/proc/sys/kernel/random/boot_id"
mount -o remount,bind,ro "$root/proc/sys"
for file in sysrq-trigger irq bus fs; do
    [ -e "$root/proc/$file" ] || continue
    mount --bind "$root/proc/$file" "$root/proc/$file"
    mount -o remount,bind,ro "$root/proc/$file"
done
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
small_dev
touch "$root/dev/console"
mount --bind "$CONSOLE" "$root/dev/console"
IFS=$'\n'
for share in $SHARES; do
    inside=${share#*:} mode=${share##*:}
    inside=$root${inside%:*}
    mkdir -p "$inside"
    mount --bind "${share%%:*}" "$inside"
    mount -o "remount,bind,nosuid,nodev,$mode" "$inside"
done
IFS=$' \t\n'
hostname "$name"
# The network card is plugged in before the power comes on.
read -r _
leave
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    "SALTVIRT_LAB=$SALTVIRT_LAB" "SALTVIRT_NODE=$name" \
    setpriv --bounding-set "$DENIED" --inh-caps "$DENIED" /sbin/init </dev/null >/dev/null 2>&1
