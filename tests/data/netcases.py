"""A bridge to keep over a reboot, for the tests of those that keep it."""

from saltvirt.network.managers import linkconfig

CONFIG = linkconfig.LinkConfig(
    name="br0",
    ports=("eth0",),
    dhcp=False,
    addresses=("10.0.0.4/16", "fd00::4/64"),
    gateways=("10.0.0.1",),
    routes=(("10.9.0.0/16", "10.0.0.9"),),
    dns=("10.0.0.53",),
    mtu=1500,
    mac="52:00:00:00:00:01",
    stp=False,
    forward_delay_s=0,
    vlan_filtering=False,
)
