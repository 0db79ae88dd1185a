"""The parts of the lab's code that need no lab."""

import pytest
from labkit import bootwatch, node, plain, roots
from labkit.settings import Lab, LabError

ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/x] https://download.example/linux/debian bookworm stable
deb http://mirror.example/debian/ bookworm main contrib
"""
STANZAS = """\
Types: deb
# http://archive.example/debian
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb-src
URIs: http://source.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: mirror+file:/etc/apt/mirrors/debian.list
Suites: bookworm
Components: main
"""


@pytest.mark.parametrize(
    ("name", "text", "address"),
    [
        ("sources.list", ONE_LINE, "http://mirror.example/debian"),
        ("sources.list.d/debian.sources", STANZAS, "http://mirror.example/debian"),
        (
            "sources.list.d/docker.list",
            ONE_LINE.rpartition("deb ")[0],
            "http://deb.debian.org/debian",
        ),
    ],
)
def test_the_machines_own_mirror_is_one_of_debian_itself(tmp_path, name, text, address):
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / name).write_text(text)

    assert roots.mirror(tmp_path) == address


STANDS = """\
SYSLINUX 6.04
[  242.898615] INFO: task swapper/0:1 blocked for more than 120 seconds.
[  242.899751]       Not tainted 6.1.0-50-cloud-amd64 #1
[  242.899921] "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
"""


class Hosts:
    """Hosts with files in a folder, which record the commands that they should run."""

    hosts = ("hyper1", "hyper2")

    def __init__(self, folder):
        self.there, self.ran = folder, []

    def folder(self, host):
        """Return a host's folder; the second host is just restarting."""
        if host == "hyper2":
            raise KeyError(host)
        return self.there

    def sh(self, host, script):
        """Record the command, and end the watch."""
        self.ran.append((host, script))


@pytest.mark.parametrize(
    ("console_text", "is_reset"),
    [
        (STANDS, True),
        (STANDS + STANDS.split("\n", 1)[1], True),
        (STANDS + "SYSLINUX 6.04\nDebian GNU/Linux 12 t1 ttyS0\n\nt1 login: \n", False),
        ("[  12.1] INFO: task dd:212 blocked for more than 120 seconds.\n", False),
        ("", False),
    ],
)
def test_a_guest_that_hangs_before_its_init_is_reset_once(
    tmp_path, monkeypatch, console_text, is_reset
):
    consoles = tmp_path / "var/log/libvirt/qemu"
    consoles.mkdir(parents=True)
    (consoles / "t1-console.log").write_text(console_text)
    looks = iter([False, False, False, True])
    monkeypatch.setattr(bootwatch.threading.Event, "wait", lambda _self, _s: next(looks))
    hosts = Hosts(tmp_path)

    bootwatch.watch(hosts, bootwatch.threading.Event())

    assert hosts.ran == [("hyper1", "virsh -q reset t1 || true")] * is_reset


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_lab_cannot_change_its_kind(tmp_path, monkeypatch, is_plain):
    lab = Lab(root=tmp_path, salt="3008")
    if is_plain:
        plain.mark(lab)
        with pytest.raises(LabError, match="lab sync: this lab is plain"):
            plain.refuse(lab, "sync")
    else:
        plain.refuse(lab, "sync")
    monkeypatch.setattr(node, "alive", lambda _lab: {"master": 1})

    plain.check_kind(lab, is_plain)
    with pytest.raises(LabError, match="the lab that is up is .*plain: lab down"):
        plain.check_kind(lab, not is_plain)
    monkeypatch.setattr(node, "alive", lambda _lab: {})
    plain.check_kind(lab, not is_plain)
