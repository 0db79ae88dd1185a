"""A clone is another minion, host and guest: what its source has of its own, it has not."""

import pytest

DEBIAN = "salt://images/debian-minion.qcow2"
SOURCE, CLONE, BY_APPLIANCE = "web1", "web2", "web3"
OWN = "cat /etc/machine-id /etc/salt/minion_id /etc/hostname /etc/salt/pki/minion/minion.pub"
MARK = "/srv/what-was-written"


def ask(cloud, minion, command):
    """Return what a command prints in a guest."""
    return cloud.salt(minion, "cmd.run", command).data[minion]


# Four boots of an emulated guest, each of minutes on a busy machine.
@pytest.mark.nightly
@pytest.mark.second_nightly
@pytest.mark.timeout(5400)
def test_a_clone_has_an_identity_of_its_own_and_its_sources_data(clean):
    deploy = ("virt.init", SOURCE, "1", "1024", DEBIAN, "host=hyper1", "wait_s=1200")
    assert clean.run(*deploy).code == 0
    ask(clean, SOURCE, f"echo kept >{MARK}; sync")
    had = ask(clean, SOURCE, OWN)
    refused = clean.run("virt.clone", SOURCE, CLONE)
    assert refused.code == 1 and f"VM '{SOURCE}' runs" in refused.error
    assert clean.run("virt.stop", SOURCE).code == 0

    would = clean.run("virt.clone", SOURCE, CLONE, "dry_run=True")
    done = clean.run("virt.clone", SOURCE, CLONE, "wait_s=1200")

    assert would.code == done.code == 0, would.out + done.out
    assert would.data["hyper1"]["disks"][0]["made"] == "copy"
    assert (done.data["name"], done.data["host"]) == (CLONE, "hyper1")
    differs(clean, CLONE, had)
    assert clean.run("virt.purge", CLONE).code == 0
    how = ("seed_method=guestfs", "wait_s=1200")
    done = clean.command("salt-run", "virt.clone", SOURCE, BY_APPLIANCE, *how)
    assert done.code == 0 and f"{BY_APPLIANCE}: Seeding (by guestfs)" in done.out, done.out
    differs(clean, BY_APPLIANCE, had)
    assert clean.run("virt.start", SOURCE).code == 0
    for name in (BY_APPLIANCE, SOURCE):
        assert clean.run("virt.purge", name).code == 0


def differs(cloud, name, had):
    """Check that a clone has its source's data, and another identity than that had."""
    assert ask(cloud, name, f"cat {MARK}") == "kept"
    has = ask(cloud, name, OWN)
    assert had.split()[1:3] == [SOURCE] * 2 and has.split()[1:3] == [name] * 2
    assert had.split()[0] != has.split()[0] and had.split()[10] != has.split()[10]


@pytest.mark.nightly
def test_libvirt_takes_a_clone_and_its_firmwares_variables(clean):
    disks = 'disks=[{"name": "system", "size": 8}]'
    init = ("virt.init", SOURCE, "1", "96", "seed=False", "start=False", disks, "enable_vnc=True")
    assert clean.local("hyper1", *init) is True
    # The firmware itself is not started: only where it keeps its variables matters.
    change = (
        "s!</os>!<loader readonly='yes' type='pflash'>/srv/fw.fd</loader>"
        f"<nvram>/srv/{SOURCE}_VARS.fd</nvram></os>!"
    )
    clean.sh(
        "hyper1",
        f"touch /srv/fw.fd; head -c 100000 /dev/urandom >/srv/{SOURCE}_VARS.fd; "
        f'virsh -q dumpxml --inactive {SOURCE} | sed "{change}" >/srv/x; virsh -q define /srv/x',
    )

    said = clean.local("hyper1", "virt.clone", SOURCE, CLONE, "seed=False", "start=False")

    assert [f"has the identity of '{SOURCE}' in it" in one for one in said["warnings"]] == [True]
    compared = f"cmp /srv/{SOURCE}_VARS.fd /srv/{CLONE}_VARS.fd && echo same"
    assert clean.sh("hyper1", compared).split() == ["same"]
    for name in (CLONE, SOURCE):
        assert clean.local("hyper1", "virt.purge", name) is True
    assert clean.sh("hyper1", "ls /srv/*_VARS.fd 2>/dev/null || true") == ""
    clean.sh("hyper1", "rm /srv/fw.fd /srv/x")
