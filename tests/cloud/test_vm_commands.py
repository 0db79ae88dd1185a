"""Every command on a VM finds the VM's host, and several VMs are a table."""

import re
import shlex

import pageoutputs
import pytest
from cloudkit import TINY, scripts, ticks, wait

PAGE = "vm-commands.md"


@pytest.fixture
def web(clean):
    """Two tiny guests, on two hosts."""
    for host, name in (("hyper1", "web1"), ("hyper2", "web2")):
        assert clean.local(host, "virt.init", name, "1", "96", TINY, "seed=False") is True
    yield clean
    clean.purge_all()


def test_the_page_of_commands_is_followed(web, request):
    printed = {}
    for line in "".join(scripts("vm-commands.md")).splitlines():
        program, *words = shlex.split(line)
        done = web.command(program, *words)
        assert done.code == 0, done.out + done.err
        assert done.traceback == []
        printed[line] = done.out

    for command in pageoutputs.outputs(PAGE):
        is_regenerated = request.config.getoption("--regenerate")
        pageoutputs.compare(PAGE, command, printed[command], is_regenerated)
    assert web.local("hyper1", "virt.list_snapshots", "web1") == {"web1": "N/A"}
    for host, name in (("hyper1", "web1"), ("hyper2", "web2")):
        assert "Autostart:      enable" in web.sh(host, f"virsh dominfo {name}")


def test_a_vm_is_changed_wherever_it_is(web):
    done = web.run("virt.update", "web2", "autostart=True", "live=False")
    assert done.code == 0 and list(done.data) == ["hyper2"], done.out + done.err
    assert web.run("virt.hold", "web2").data == {"hyper2": {"web2": "held"}}
    assert web.run("virt.setmem", "web2", "128", "config=True").code == 0
    assert web.run("virt.get_macs", "web1").data["hyper1"]["web1"]
    assert "<name>web2</name>" in web.run("virt.get_xml", "web2").out

    stopped = web.run("virt.stop", "web*").data["vms"]
    assert {name: row["outcome"] for name, row in stopped.items()} == {
        "web1": "stopped at once, by pulling its plug",
        "web2": "stopped at once, by pulling its plug",
    }
    again = web.run("virt.stop", "[web1, web2]").data["vms"]
    assert {row["outcome"] for row in again.values()} == {"already off; nothing was done"}
    failed = web.run("virt.reboot", "web*")
    assert failed.code == 1 and "virt.reboot failed for 2 of 2 VMs: web1, web2" in failed.error
    assert "'web1' is not running; start it: salt-run virt.start web1" in str(failed.data)


def test_a_guest_that_is_asked_to_shut_down_obeys_or_is_told_of(web):
    wait("ticking guests", lambda: ticks(web, "hyper1", "web1") > 3 < ticks(web, "hyper2", "web2"))
    web.sh("hyper2", "virsh suspend web2")

    refused = web.run("virt.shutdown", "web*")

    assert refused.code == 1 and "virt.shutdown failed for 1 of 2 VMs: web2" in refused.error
    rows = refused.data["vms"]
    assert re.fullmatch(r"shut down after \d+ s", rows["web1"]["outcome"])
    assert "is paused" in rows["web2"]["error"]
    assert "salt-run virt.resume web2" in rows["web2"]["error"]
    assert web.local("hyper1", "virt.vm_state", "web1") == {"web1": "shutdown"}
    assert "already off" in str(web.run("virt.shutdown", "web1").data)


def test_no_caller_leads_a_host_elsewhere(web):
    done = web.run("virt.update", "web1", "connection=qemu+ssh://evil/system", "cpu=1")

    assert done.code == 1 and "has no argument 'connection'" in done.error
