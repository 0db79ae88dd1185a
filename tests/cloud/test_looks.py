"""Who may only look has nothing run, opened or asked elsewhere; a stranger rewrites no screen."""

import time

import pytest

pytestmark = [pytest.mark.second_nightly]
PROGRAM, RAN = "/srv/strange/program", "/srv/strange/ran"
# What a minion sends before any key of its is accepted.
SHOW = r"""
import os, sys
import salt.channel.client, salt.config
opts = salt.config.minion_config(None)
opts.update(master_ip="127.0.0.1", master_uri="tcp://127.0.0.1:4506", __role="minion")
opts["pki_dir"] = "/srv/shown-keys"
os.makedirs(opts["pki_dir"], exist_ok=True)
for name in IDS:
    opts["id"] = name
    with salt.channel.client.ReqChannel.factory(opts, crypt="clear") as channel:
        load = {"cmd": "_auth", "id": name, "nonce": "0" * 32, "pub": PUBLIC, "token": b"x"}
        load |= {"enc_algo": "OAEP-SHA1", "sig_algo": "PKCS1v15-SHA1"}
        channel.send(load, timeout=10, tries=1)
"""
ODD = ["hyper9\x1b[2A\r    hyper9", "a\x9b2J", "c\nhypervisors:\n    hyper8:", "d\u202egnp"]


@pytest.fixture
def strange(cloud):
    """A program of a user of the host, and whether it has run."""
    cloud.sh(
        "hyper1",
        f"mkdir -p /srv/strange; printf '#!/bin/sh\\ntouch {RAN}\\nexit 1\\n' > {PROGRAM}; "
        f"chmod 755 {PROGRAM}; chmod 777 /srv/strange",
    )
    yield lambda: cloud.sh("hyper1", f"test -e {RAN} && echo ran; rm -f {RAN}").strip() == "ran"
    cloud.sh("hyper1", "rm -r /srv/strange")


def test_no_emulator_is_run_that_libvirt_does_not_list(cloud, strange):
    done = cloud.call("hyper1", "virt.domain_capabilities", f"emulator={PROGRAM}")

    assert done.code != 0 and "none that libvirt lists" in done.out + done.err
    assert not strange()
    # libvirt itself does run it for root.
    cloud.sh("hyper1", f"virsh domcapabilities --emulatorbin {PROGRAM}; true")
    assert strange()


def test_what_libvirt_lists_is_told_of(cloud):
    found = cloud.local("hyper1", "virt.capabilities")
    own = found["host"]["cpu"]["arch"]
    kinds = [guest["arch"] for guest in found["guests"] if guest["arch"]["name"] == own]
    emulator = kinds[0]["emulator"]

    found = cloud.local("hyper1", "virt.domain_capabilities", f"emulator={emulator}")

    assert found["emulator"] == emulator


@pytest.mark.parametrize(
    "uri",
    [
        "qemu+tls://hyper2/system",
        f"qemu+ssh://root@hyper2/system?socket=/x%3B{PROGRAM}",
        f"qemu+ext:///system?command={PROGRAM}",
    ],
)
def test_no_other_host_is_asked_by_a_call(cloud, strange, uri):
    done = cloud.call("hyper1", "virt.list_domains", f"connection={uri}")

    assert done.code != 0 and done.traceback == []
    assert "virt:connections of this host does not list the whole URI" in done.out + done.err
    assert not strange()


def test_another_host_that_is_listed_is_asked(cloud):
    uri = "qemu+tls://hyper2/system"
    listed = f'virt.connections: ["{uri}"]'
    cloud.sh("hyper1", f"printf '%s\\n' '{listed}' > /etc/salt/minion.d/listed.conf")
    try:
        done = cloud.sh(
            "hyper1", f"salt-call --local --out=json virt.list_domains connection={uri}"
        )
    finally:
        cloud.sh("hyper1", "rm /etc/salt/minion.d/listed.conf")

    assert '"local": [' in done


@pytest.mark.nightly
def test_a_libvirtd_that_is_silent_ends_a_look(cloud):
    """The kernel takes connections for a daemon that is stopped."""
    cloud.sh("hyper1", "systemctl start libvirtd; kill -STOP $(pidof libvirtd)")
    begun = time.monotonic()
    try:
        done = cloud.call("hyper1", "virt.list_domains")
    finally:
        cloud.sh("hyper1", "kill -CONT $(pidof libvirtd)")

    assert time.monotonic() - begun < 120
    assert done.code != 0 and done.traceback == []
    assert "libvirt does not answer at qemu:///system: no answer within 30 s" in done.out + done.err


def test_the_id_of_a_key_that_waits_rewrites_no_screen(cloud):
    public = cloud.sh("master", "cat /etc/salt/pki/master/master.pub")
    script = f"IDS, PUBLIC = {ODD!r}, {public!r}\n{SHOW}"
    (cloud.folder("master") / "srv/show.py").write_text(script)
    try:
        cloud.sh("master", "/opt/saltstack/salt/bin/python3 /srv/show.py")
        screen = cloud.sh("master", "script -qec 'salt-run virt.allow' /dev/null")
        data = cloud.run("virt.allow").data
    finally:
        for one in (cloud.folder("master") / "etc/salt/pki/master/minions_pre").iterdir():
            if one.name in ODD:
                one.unlink()
        cloud.sh("master", "rm -r /srv/show.py /srv/shown-keys")

    shown = screen.replace("\r\n", "\n")
    # Salt's own colours are the terminal's business; strangers' letters are not.
    assert not [one for one in ("\x1b[2A", "\x9b", "\r", "\u202e") if one in shown], screen
    # Sentences are wrapped, so spaces in a row are one.
    words = " ".join(shown.split())
    assert r"hyper9\x1b[2A\r hyper9" in words and r"c\nhypervisors:\n hyper8:" in words
    assert sorted(data["odd_ids"]) == sorted(ODD)
