"""The lab's one segment: a bridge in the master's namespace, a veth to each host's br0."""

import json
import subprocess

from labkit.node import inside


def _links(pid):
    text = inside(pid, ["ip", "-j", "link"])
    return {link["ifname"] for link in json.loads(text)}


def _batch(pid, commands):
    text = "\n".join(commands) + "\n"
    argv = ["nsenter", "-t", str(pid), "-n", "ip", "-batch", "-"]
    subprocess.run(argv, input=text, text=True, check=True, capture_output=True)


def make_segment(lab, master_pid):
    """Make the segment's bridge on the master, with the master's own address on it."""
    if "segment" in _links(master_pid):
        return
    _batch(
        master_pid,
        [
            "link set lo up",
            "link add segment type bridge stp_state 0 forward_delay 0",
            f"addr add {lab.master_ip}/16 dev segment",
            "link set segment up",
        ],
    )


def plug_in(lab, host, pid, master_pid):
    """Give a host its eth0, joined to the segment, with the host's own address on it."""
    _plug(host, pid, master_pid)
    _batch(
        pid,
        [
            "link set lo up",
            f"addr add {lab.host_ip(host)}/16 dev eth0",
            "link set eth0 up",
            f"route add default via {lab.master_ip}",
        ],
    )


def _plug(host, pid, master_pid):
    link = f"link add {host} netns {master_pid} type veth peer name eth0 netns {pid}"
    _batch(master_pid, [link, f"link set {host} master segment up"])


def join_segment(lab, host, pid, master_pid):
    """Give a host its br0, joined to the segment through eth0."""
    if "br0" in _links(pid):
        return
    _plug(host, pid, master_pid)
    _batch(
        pid,
        [
            "link set lo up",
            "link add br0 type bridge stp_state 0 forward_delay 0",
            "link set eth0 master br0 up",
            f"addr add {lab.host_ip(host)}/16 dev br0",
            "link set br0 up",
            f"route add default via {lab.master_ip}",
        ],
    )
