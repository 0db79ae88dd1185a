"""A VM gets another name, and the minion in its guest answers under it."""

import pytest
from cloudkit import TINY, wait

DEBIAN = "salt://images/debian-minion.qcow2"
OWN = "cat /etc/machine-id /etc/salt/pki/minion/minion.pub"
NAMES = "cat /etc/salt/minion_id /etc/hostname; hostname"


def ask(cloud, minion, command):
    """Return what a command prints in a guest."""
    return cloud.salt(minion, "cmd.run", command).data[minion]


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_the_minion_of_a_guest_answers_under_its_new_name(clean):
    deploy = ("virt.init", "web1", "2", "1024", DEBIAN, "host=hyper1", "wait_s=600")
    done = clean.run(*deploy)
    assert done.code == 0, done.out + done.err
    own = ask(clean, "web1", f"sync; {OWN}")
    refused = clean.run("virt.rename", "web1", "db1")
    assert refused.code == 1 and "only a stopped VM is renamed" in refused.error
    assert clean.run("virt.stop", "web1").code == 0
    uuid = clean.sh("hyper1", "virsh domuuid web1").strip()

    would = clean.run("virt.rename", "web1", "db1", "dry_run=True")
    done = clean.run("virt.rename", "web1", "db1")

    assert would.code == done.code == 0, would.out + done.out + done.err
    assert would.data == {"hyper1": {"web1": "would be renamed to db1 with its minion and key"}}
    assert done.data == {"hyper1": {"web1": "renamed to db1"}}
    assert clean.sh("hyper1", "virsh domuuid db1").strip() == uuid
    assert {"web1", "db1"} & {*clean.accepted()} == {"db1"}
    assert clean.run("virt.start", "db1").code == 0
    wait("db1 answers", lambda: clean.answers("db1"), 300)
    assert ask(clean, "db1", NAMES).split() == ["db1"] * 3
    assert ask(clean, "db1", OWN) == own
    # Its disk is called as before, and is its disk all the same.
    disks = clean.run("virt.get_disks", "db1").data["hyper1"]["db1"]
    assert "/srv/salt-images/web1_system.qcow2" in {disk["file"] for disk in disks.values()}
    same = clean.run("virt.update", "db1", 'disks=[{"name": "system"}]', "dry_run=True")
    assert same.code == 0 and same.data["hyper1"]["db1"]["disk"]["attached"] == [], same.out
    assert clean.run("virt.purge", "db1").code == 0
    assert clean.sh("hyper1", "ls /srv/salt-images | grep -E '^(web1|db1)_' || true") == ""
    assert clean.run("virt.doctor").data.get("leftovers", []) == []


def test_real_libvirt_renames_what_is_named_after_a_vm(clean):
    init = ("virt.init", "fw1", "1", "96", TINY, "seed=False", "start=False", "host=hyper1")
    assert clean.run(*init).code == 0
    clean.sh("hyper1", "virsh -q autostart fw1; virsh -q snapshot-create-as fw1 before")
    refused = clean.run("virt.rename", "fw1", "fw2")
    assert refused.code == 1 and "has 1 snapshots, which libvirt does not carry" in refused.error
    # libvirt of Debian 12 takes no snapshot of a VM with such a firmware.
    nvram, loader = "/srv/fw1_VARS.fd", "<loader readonly='yes' type='pflash'>/srv/fw.fd</loader>"
    change = f"s!</os>!{loader}<nvram>{nvram}</nvram></os>!"
    clean.sh(
        "hyper1",
        "virsh -q snapshot-delete fw1 before; "
        f"touch /srv/fw.fd; head -c 1000 /dev/urandom >{nvram}; "
        f'virsh -q dumpxml --inactive fw1 | sed "{change}" >/srv/x; virsh -q define /srv/x',
    )

    done = clean.run("virt.rename", "fw1", "fw2")

    assert done.data == {"hyper1": {"fw1": "renamed to fw2"}}, done.out
    assert clean.sh("hyper1", "ls /srv/*_VARS.fd").split() == ["/srv/fw2_VARS.fd"]
    shown = clean.sh("hyper1", "virsh dumpxml --inactive fw2; virsh dominfo fw2")
    assert "<nvram>/srv/fw2_VARS.fd</nvram>" in shown and "fw2-console.log" in shown
    assert "fw1-console.log" not in shown and "Autostart:      enable" in shown
    assert clean.run("virt.purge", "fw2").code == 0
    clean.sh("hyper1", "rm -f /srv/fw.fd /srv/x /srv/*_VARS.fd")
