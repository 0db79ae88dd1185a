#!/bin/sh
# debian.sh WORK OUT.qcow2 ROOT.tar [SITE-PACKAGES]: a Debian cloud image, with a salt-minion when
# Salt's installed packages are given.
set -eu
here=$(dirname "$0") work=$1 out=$2 tar=$3 packages=${4:-}
root=$work/root
mkdir -p "$root"
tar -C "$root" -xf "$tar" --exclude=./dev/*
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root/etc/machine-id"
: >"$root/etc/machine-id"
echo debian >"$root/etc/hostname"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
# The lab's switch; a guest without systemd-resolved takes no server from its lease.
echo 'nameserver 10.77.0.2' >"$root/etc/resolv.conf"
echo 'LABEL=rootfs / ext4 rw,discard,errors=remount-ro 0 1' >"$root/etc/fstab"
# The modules that a guest needs: each of the others costs a second under emulation.
cat >"$root/etc/cloud/cloud.cfg.d/90_image.cfg" <<'X'
datasource_list: [NoCloud, None]
# What can wait until the login prompt is there comes in the second list.
cloud_init_modules: [bootcmd, write-files, set_hostname, update_etc_hosts]
cloud_config_modules: [growpart, resizefs, users-groups, runcmd]
cloud_final_modules: [package-update-upgrade-install, scripts-user, final-message]
X
chroot "$root" passwd -q -l root
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service \
    fstrim.timer man-db.timer modprobe@drm.service modprobe@fuse.service \
    modprobe@configfs.service systemd-network-generator.service dpkg-db-backup.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
chroot "$root" systemctl -q enable systemd-networkd

if [ -n "$packages" ]; then
    mkdir -p "$root/opt/salt"
    cp -a "$packages/." "$root/opt/salt/"
    rm -rf "$root"/opt/salt/pip* "$root"/opt/salt/libvirt* "$root"/opt/salt/setuptools* 
    for program in minion call; do
        cat >"$root/usr/bin/salt-$program" <<X
#!/usr/bin/python3
import sys
sys.path.insert(0, "/opt/salt")
from salt.scripts import salt_$program
salt_$program()
X
        chmod +x "$root/usr/bin/salt-$program"
    done
    mkdir -p "$root/etc/salt/minion.d"
    cat >"$root/etc/systemd/system/salt-minion.service" <<'X'
[Unit]
Description=The Salt Minion
After=network.target

[Service]
KillMode=process
ExecStart=/usr/bin/salt-minion
Restart=on-failure

[Install]
WantedBy=multi-user.target
X
    chroot "$root" systemctl -q enable salt-minion
    printf 'enable_fqdns_grains: False\nenable_gpu_grains: False\n' \
        >"$root/etc/salt/minion.d/image.conf"
    printf 'acceptance_wait_time: 1\nrandom_reauth_delay: 1\n' \
        >>"$root/etc/salt/minion.d/image.conf"
fi
chroot "$root" python3 -m compileall -q /usr/lib/python3 /usr/lib/python3.11 /opt >/dev/null || true

# noxsave: without AVX, which software emulation is slow at, a boot takes a seventh less.
mkdir -p "$root/boot/extlinux"
cat >"$root/boot/extlinux/extlinux.conf" <<'X'
SERIAL 0 115200
DEFAULT debian
PROMPT 0
TIMEOUT 0
LABEL debian
 KERNEL /vmlinuz
 INITRD /initrd.img
 APPEND root=LABEL=rootfs rw console=ttyS0 quiet net.ifnames=0 tsc=reliable no_timer_check mitigations=off noxsave cryptomgr.notests nokaslr noreplace-smp
X
used_mib=$(du -sm "$root" | cut -f1)
"$here/disk.sh" "$root" "$((used_mib * 5 / 4 + 200))" "$out"
