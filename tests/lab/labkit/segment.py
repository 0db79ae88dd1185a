"""The lab's switch: a bridge, addresses and names for all, and a mirror of packages.

The mirror is what hosts without the internet install from: the Debian packages and the Python
packages that the formula and the tests ask for, kept in the cache.
"""

from labkit import layers, node, roots
from labkit.mirror import MIRROR
from labkit.settings import (
    CACHE,
    MASTER_IP,
    MOST_HOSTS,
    SWITCH,
    SWITCH_IP,
    host,
)

_LEASE = "2m"
_DNSMASQ = f"""\
interface=segment
bind-interfaces
no-resolv
no-hosts
dhcp-authoritative
no-ping
dhcp-range=10.77.100.1,10.77.199.254,255.255.0.0,12h
dhcp-option=option:router,{SWITCH_IP}
log-dhcp
host-record=master,salt,{MASTER_IP}
"""
_BRIDGE = "[NetDev]\nName=segment\nKind=bridge\n[Bridge]\nSTP=no\nForwardDelaySec=0\n"
_DNSMASQ_UNIT = (
    "[Unit]\nAfter=sys-subsystem-net-devices-segment.device\n"
    "[Service]\nRestart=on-failure\nRestartSec=0.2\n[Unit]\nStartLimitIntervalSec=0\n"
)
_NETWORK = (
    f"[Match]\nName=segment\n[Network]\nAddress={SWITCH_IP}/16\n" "ConfigureWithoutCarrier=yes\n"
)
_HTTP = """\
[Unit]
After=systemd-networkd-wait-online.service
[Service]
ExecStart=/usr/bin/python3 -m http.server 80 --bind 0.0.0.0 -d /srv/cache/mirror
DynamicUser=yes
AmbientCapabilities=CAP_NET_BIND_SERVICE
[Install]
WantedBy=multi-user.target
"""


# Its own links are those of the others; the mirror's folders are reached by links below it.
PLUGS = {"shares": [(str(CACHE), "/srv/cache", "ro")]}


def stack():
    """Return the root of the switch."""
    recipe = roots.APT.format("dnsmasq") + "; systemctl -q disable dnsmasq"
    return layers.add("switch", recipe, roots.base("bookworm"), "the switch")


def create(lab):
    """Make the switch, which has not booted yet."""
    MIRROR.mkdir(parents=True, exist_ok=True)
    seed = node.create(lab, SWITCH, stack(), **PLUGS)
    rows = [_DNSMASQ]
    for number in range(1, MOST_HOSTS + 1):
        one = host(f"hyper{number}")
        rows += [
            f"dhcp-host={one.mac},{one.name},{one.address},{_LEASE}\n",
            f"host-record={one.name},{one.address}\n",
        ]
    node.write(
        seed,
        {
            "etc/dnsmasq.d/lab.conf": "".join(rows),
            "etc/systemd/network/10-segment.netdev": _BRIDGE,
            "etc/systemd/network/10-segment.network": _NETWORK,
            "etc/systemd/system/mirror.service": _HTTP,
            "etc/systemd/system/dnsmasq.service.d/lab.conf": _DNSMASQ_UNIT,
            "first-boot": "systemctl -q enable systemd-networkd dnsmasq mirror\n"
            "systemctl -q mask systemd-networkd-wait-online\n",
            **node.identity(SWITCH),
        },
    )
