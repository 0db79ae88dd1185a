"""Who made a VM gets into it: by a key, by an address without a bridge, or by its console's end."""

import ipaddress
import json
import subprocess

import pytest
from cloudkit import TINY

DEBIAN = "salt://images/debian-minion.qcow2"
# The lab's image has no sshd, and leaves out what of cloud-init would slow every other test.
WITH_KEYS = {
    "cloud_config_modules": ["users-groups", "ssh", "runcmd"],
    "ssh_genkeytypes": [],
    "ssh_deletekeys": False,
}
HOME = "/home"  # of the guest


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """A public key of a user's."""
    path = tmp_path_factory.mktemp("user") / "id_ed25519"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "anna@desk", "-f", path]
    subprocess.run(argv, check=True)
    return path.with_suffix(".pub").read_text().strip()


@pytest.fixture
def impatient(cloud):
    """A master that waits 20 s for the minion of a new VM."""
    path = cloud.master_conf / "master.d/zz-wait.conf"
    path.write_text(json.dumps({"virt": {"timeout_s": 20, "wait_s": 20}}))
    yield
    path.unlink()
    assert cloud.run("virt.purge", "silent1").code == 0


@pytest.mark.nightly
def test_the_default_user_of_an_image_is_let_in_by_the_key(clean, key):
    words = [f"ssh_authorized_keys={json.dumps([key])}", f"user_data={json.dumps(WITH_KEYS)}"]
    # The lab says nocloud; who the image's user is, is known of one that was looked into.
    words.append("seed_method=auto")

    done = clean.run("virt.init", "keyed1", "2", "1024", DEBIAN, "host=hyper1", *words)

    assert done.code == 0, done.out + done.err
    address = done.data["addresses"][0]
    assert done.data["login"] == f"ssh debian@{address}"
    assert address in clean.salt("keyed1", "network.ip_addrs").data["keyed1"]
    folder = f"{HOME}/debian/.ssh"
    script = f"cat {folder}/authorized_keys; stat -c '%a %U' {folder} {folder}/authorized_keys"
    said = clean.salt("keyed1", "cmd.run", script).data["keyed1"].splitlines()
    assert said == [key, "700 debian", "600 debian"]
    shown = clean.run("virt.vm_info", "keyed1").data["hyper1"]["keyed1"]
    assert shown["ssh_user"] == "debian"
    assert clean.run("virt.purge", "keyed1").code == 0


@pytest.mark.nightly
def test_root_of_an_image_is_let_in_where_its_disk_is_written(clean, key):
    words = ["seed_method=guestfs", f"ssh_authorized_keys={key}"]

    done = clean.run("virt.init", "keyed2", "2", "1024", DEBIAN, "host=hyper1", *words)

    assert done.code == 0, done.out + done.err
    assert done.data["login"] == f"ssh root@{done.data['addresses'][0]}"
    script = "cd; cat .ssh/authorized_keys; stat -c '%a %U' .ssh .ssh/authorized_keys"
    said = clean.salt("keyed2", "cmd.run", script, "runas=root").data["keyed2"].splitlines()
    assert said == [key, "700 root", "600 root"]
    assert clean.run("virt.purge", "keyed2").code == 0


def test_a_key_that_is_none_is_refused_before_anything_is_made(clean):
    done = clean.run("virt.init", "keyed3", "1", "96", TINY, "ssh_authorized_keys=hello")

    assert done.code == 1
    assert "ssh_authorized_keys: key 1: does not begin with its type" in done.error


@pytest.mark.nightly
def test_a_vm_without_a_bridge_reaches_its_master_and_says_its_address(clean):
    done = clean.command(
        "salt-run", "virt.init", "nat1", "2", "1024", DEBIAN, "host=hyper1", "nic=nat"
    )

    assert done.code == 0, done.out + done.err
    assert (
        "nat1: Network (nat: only its host reaches it, and a move breaks its connections)"
        in done.out
    )
    shown = clean.run("virt.vm_info", "nat1").data["hyper1"]["nat1"]
    address = shown["addresses"][0]
    assert ipaddress.ip_address(address) in ipaddress.ip_network("192.168.122.0/24")
    assert f"  address: {address}\n  log in: " in done.out
    assert (shown["addresses_from"], shown["behind_host"]) == ("lease", ["192.168.122.0/24"])
    would = clean.run("virt.migrate", "nat1", "dry_run=True").data
    assert would["warning"].startswith("behind NAT (default): its connections break")
    # Its host reaches it.
    clean.sh("hyper1", f"ping -c 1 -W 10 {address}")
    assert clean.run("virt.purge", "nat1").code == 0


def test_a_host_whose_network_is_off_says_how_to_start_it(clean):
    clean.sh("hyper1", "virsh -q net-destroy default")
    try:
        done = clean.run("virt.init", "nat2", "1", "96", TINY, "host=hyper1", "nic=nat")
    finally:
        clean.sh("hyper1", "virsh -q net-start default")

    assert done.code == 1
    why = done.data["hosts"]["hyper1"]["reasons"]
    assert why == ["no active network default there (on it: virsh net-start default)"]


def test_the_formula_starts_the_network_again(clean):
    clean.sh("hyper1", "virsh -q net-destroy default")

    said = clean.local("hyper1", "state.apply", "hypervisor.nat")

    (state,) = [one for one in said.values() if one["__id__"] == "hypervisor_nat"]
    assert (state["result"], state["changes"]) == (True, {"started": True})
    assert "yes" in clean.sh("hyper1", "virsh net-info default | grep -i active")


@pytest.mark.nightly
def test_the_end_of_a_silent_vms_console_is_in_the_error(clean, impatient):
    """The tiny guest has no minion, and counts on its console."""
    done = clean.run("virt.init", "silent1", "1", "96", TINY, "host=hyper1")

    assert done.code == 1 and "does not answer after 20 s" in done.error
    assert "it may still come: salt silent1 test.ping" in done.error
    assert done.data["console_command"] == "salt-run virt.console_log silent1"
    assert len(done.data["console"]) == 10
    assert any(line.startswith("TICK ") for line in done.data["console"])
    more = clean.run("virt.console_log", "silent1", "lines=3").data
    assert len(more.splitlines()) == 3 and "TICK " in more
