#!/bin/sh
# tiny.sh WORK OUT.qcow2: busybox on Debian's cloud kernel, booted from its own disk in about two
# seconds. counting.c says what it does.
set -eu
here=$(dirname "$0") work=$1 out=$2
kernel=$(basename "$(ls /boot/vmlinuz-*-cloud-amd64 | tail -n 1)" | sed s/vmlinuz-//)
modules=/lib/modules/$kernel/kernel

ram=$work/ram
mkdir -p "$ram/bin" "$ram/mod" "$ram/proc" "$ram/sys" "$ram/dev" "$ram/root"
cp /bin/busybox "$ram/bin/"
number=10
for module in drivers/virtio/virtio_ring drivers/virtio/virtio \
    drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci_legacy_dev \
    drivers/virtio/virtio_pci drivers/virtio/virtio_balloon drivers/block/virtio_blk \
    net/core/failover drivers/net/net_failover drivers/net/virtio_net drivers/cdrom/cdrom \
    fs/isofs/isofs drivers/acpi/button drivers/input/evdev; do
    [ -e "$modules/$module.ko" ] || continue
    # Without its signature, which an emulated CPU takes long to verify.
    objcopy --strip-debug "$modules/$module.ko" "$ram/mod/$number-$(basename $module).ko"
    number=$((number + 1))
done
cat >"$ram/init" <<'X'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc p /proc; $b mount -t sysfs s /sys; $b mount -t devtmpfs d /dev
for module in /mod/*; do $b insmod $module; done
n=0; while [ ! -b /dev/vda1 ] && [ $n -lt 100 ]; do $b usleep 50000; n=$((n+1)); done
$b mount -t ext4 -o rw /dev/vda1 /root || exec $b sh
$b mount --move /dev /root/dev; $b mount --move /proc /root/proc; $b mount --move /sys /root/sys
exec $b switch_root /root /sbin/init
X
chmod +x "$ram/init"
(cd "$ram" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initrd.img"

root=$work/root
for folder in bin sbin etc/init.d proc sys dev run tmp root boot/extlinux mnt var/log; do
    mkdir -p "$root/$folder"
done
cp /bin/busybox "$root/bin/"
for applet in $(busybox --list); do
    [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"
done
ln -sf ../bin/busybox "$root/sbin/init"
cp "/boot/vmlinuz-$kernel" "$root/boot/vmlinuz"
cp "$work/initrd.img" "$root/boot/initrd.img"
echo tiny >"$root/etc/hostname"
echo 'root::0:0:root:/root:/bin/sh' >"$root/etc/passwd"
cat >"$root/etc/inittab" <<'X'
::sysinit:/etc/init.d/rcS
::respawn:/bin/counting
ttyS0::askfirst:-/bin/sh
::ctrlaltdel:/bin/reboot
::shutdown:/bin/umount -a -r
X
cat >"$root/etc/init.d/rcS" <<'X'
#!/bin/sh
export PATH=/bin:/sbin
mount -t tmpfs t /run; mount -t tmpfs t /tmp
hostname -F /etc/hostname; ip link set lo up; ip link set eth0 up
udhcpc -i eth0 -b -t 10 -T 1 -s /etc/udhcpc.script >/dev/null 2>&1 &
# A press of the virtual power button ends the guest.
acpid >/dev/null 2>&1
echo "TINY-UP $(cat /proc/uptime)" >/dev/console
X
cat >"$root/etc/udhcpc.script" <<'X'
#!/bin/sh
case $1 in bound|renew) ip addr flush dev $interface; ip addr add $ip/16 dev $interface;; esac
X
gcc -O2 -Wall -Werror -static -s -o "$root/bin/counting" "$here/counting.c"
chmod +x "$root"/etc/init.d/* "$root/etc/udhcpc.script"
mkdir -p "$root/etc/acpi/PWRF"
printf '#!/bin/sh\nexec /bin/poweroff\n' >"$root/etc/acpi/PWRF/00000080"
chmod +x "$root/etc/acpi/PWRF/00000080"
# A third less to compute until it is up.
sooner="mitigations=off cryptomgr.notests nokaslr noreplace-smp"
cat >"$root/boot/extlinux/extlinux.conf" <<X
SERIAL 0 115200
DEFAULT tiny
PROMPT 0
TIMEOUT 0
LABEL tiny
 KERNEL /boot/vmlinuz
 INITRD /boot/initrd.img
 APPEND root=/dev/vda1 rw console=ttyS0 quiet net.ifnames=0 tsc=reliable no_timer_check $sooner
X
"$here/disk.sh" "$root" 64 "$out"
