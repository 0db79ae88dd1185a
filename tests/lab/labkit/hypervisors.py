"""Hosts of the lab: bare ones with a minion alone, and those that the formula made hypervisors."""

import json

from labkit import layers, mirror, node, onedir, roots, saltd
from labkit.settings import CHECKOUT, SWITCH_IP

_INTERFACES = "auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet dhcp\n"
_KEPT_BY = {
    "networkd": {
        "etc/systemd/network/10-eth0.network": "[Match]\nName=eth0\n[Network]\nDHCP=ipv4\n",
    },
    "ifupdown": {"etc/network/interfaces": _INTERFACES},
    # The first wired connection is made by NetworkManager itself, as on any desktop.
    "networkmanager": {},
}
_UNITS = {
    "networkd": "systemd-networkd",
    "ifupdown": "networking",
    "networkmanager": "NetworkManager",
}


# Beside the defaults: the bridge, as nearly every site has one, and what tests mount images with.
PILLAR = {
    "hypervisor": {
        "bridges": {"br0": {"ports": ["eth0"]}},
        "extra_packages": ["guestmount", "linux-image-cloud-amd64"],
    }
}
_FORMULA = ("packages.sls", "map.jinja", "said.jinja", "defaults.yaml", "families.yaml")
_INSTALL = """
printf 'deb [trusted=yes] file:///run/lab/debs ./\\n' >/etc/apt/sources.list
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
printf 'force-unsafe-io\\n' >/etc/dpkg/dpkg.cfg.d/lab
mkdir -p /etc/salt
printf 'file_client: local\\nid: layer\\nfile_roots: {{base: [/run/lab/project]}}\\n' >/etc/salt/minion
salt-call --retcode-passthrough --out=json state.apply hypervisor.packages pillar='{pillar}'
rm -rf /etc/salt /var/cache/salt /var/log/salt /run/salt /etc/dpkg/dpkg.cfg.d/lab
rm -rf /usr/sbin/policy-rc.d /var/lib/apt/lists/* /var/cache/apt/*.bin $HOME/.cache
: >/etc/apt/sources.list
"""  # noqa: E501


def bare_stack(lab, host):
    """Return the root of a host with a minion alone."""
    return [onedir.layer(lab.salt), *roots.base(host.release)]


def stack(lab, host):
    """Return the root of a host on which the formula finds its packages installed."""
    return packages(lab, host.release)


def packages(lab, release):
    """Return a bare root with what the formula's own package states install, run in a chroot."""
    debs, wheels = mirror.debian(release), mirror.pypi()
    formula = [(CHECKOUT / "hypervisor" / name).read_text() for name in _FORMULA]
    return layers.add(
        f"hypervisor-{lab.salt}-{release}",
        _INSTALL.format(pillar=json.dumps(PILLAR)),
        [onedir.layer(lab.salt), *roots.base(release)],
        f"what the formula installs on Debian {release} (Salt {lab.salt})",
        inputs=[*formula, debs.name, wheels.name],
        READ_ONLY=f"{CHECKOUT}:/run/lab/project\n{debs}:/run/lab/debs\n{wheels}:/run/lab/wheels",
        PIP_FIND_LINKS="/run/lab/wheels",
        PIP_NO_INDEX="1",
    )


def plugs(lab, host):
    """Return a host's network card, and the folder that all hosts share, as of a SAN."""
    return {
        "link": {"name": host.name, "mac": host.mac},
        "shares": [(str(lab.shared), "/mnt/shared", "rw")],
    }


def pillar(host):
    """Return a host's pillar; one of the three has firewalld."""
    more = {"firewall": {"backend": "firewalld"}} if host.number % 3 == 2 else {}
    # Most tests look at what a purge leaves; those of the trash turn it on.
    return {"hypervisor": {**PILLAR["hypervisor"], **more}, "virt": {"trash_days": 0}}


def create(lab, host, root, memory_mib):
    """Make a host that has never booted: bare, but for what spares the lab time and memory."""
    seed = create_quick(lab, host, root)
    options = json.dumps(_options(memory_mib)) + "\n"
    node.write(seed, {"etc/salt/minion.d/virt.conf": options})


def create_quick(lab, host, root):
    """Make a bare host whose minion starts, and comes back, in a second; return its folder."""
    seed = create_bare(lab, host, root)
    node.write(seed, {"etc/salt/minion.d/lab.conf": saltd.MINION})
    return seed


def create_bare(lab, host, root):
    """Make a host that has never booted: a Debian with its network, and a minion as installed."""
    seed = node.create(lab, host.name, root, **plugs(lab, host))
    node.write(
        seed,
        {
            **_KEPT_BY[host.network],
            "etc/salt/minion": "",
            "etc/pip.conf": f"[global]\nno-index = true\nfind-links = http://{SWITCH_IP}/pypi/\n"
            f"trusted-host = {SWITCH_IP}\n",
            "first-boot": f"systemctl -q enable {_UNITS[host.network]} salt-minion\n"
            "systemctl -q mask systemd-networkd-wait-online "
            "NetworkManager-wait-online\n",
            **node.identity(host.name),
            "etc/apt/sources.list": f"deb [trusted=yes] http://{SWITCH_IP}/{host.release} ./\n",
        },
    )
    return seed


def _options(memory_mib):
    """Return what the lab's hosts, who share one machine, may each hand out."""
    capacity = {"memory_mib": memory_mib, "disk_mib": 100 * 1024}
    # Looking into an image takes half a minute here; the tests of that ask for it.
    seed = {"method": "nocloud", "bootstrap": "/srv/bootstrap.sh"}
    return {"virt": {"capacity": capacity, "reserve_mib": 0, "seed": seed}}
