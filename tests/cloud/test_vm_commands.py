"""Every command on a VM finds the VM's host, and several VMs are a table."""

from pathlib import Path

import pytest
from cloudkit import TINY, how_to


@pytest.fixture
def web(clean):
    """Two tiny guests, on two hosts."""
    for host, name in (("hyper1", "web1"), ("hyper2", "web2")):
        assert clean.local(host, "virt.init", name, "1", "96", TINY, "seed=False") is True
    yield clean
    clean.purge_all()


def test_the_page_of_commands_is_followed(web):
    shown = ""
    for program, *words in how_to("vm-commands.md"):
        done = web.command(program, *words)
        assert done.code == 0, done.out + done.err
        assert done.traceback == []
        # The page leaves out the lines of progress above the table.
        shown = "\n".join(line for line in done.out.splitlines() if not line.startswith("virt: "))

    page = Path(__file__).parents[2] / "docs/vm-commands.md"
    assert shown.strip() in page.read_text()
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
        "web1": "stopped",
        "web2": "stopped",
    }
    again = web.run("virt.stop", "[web1, web2]").data["vms"]
    assert {row["outcome"] for row in again.values()} == {"already off; nothing was done"}
    failed = web.run("virt.reboot", "web*")
    assert failed.code == 1 and "virt.reboot failed for 2 of 2 VMs: web1, web2" in failed.error
    assert "does not run" in str(failed.data) or "not running" in str(failed.data)


def test_no_caller_leads_a_host_elsewhere(web):
    done = web.run("virt.update", "web1", "connection=qemu+ssh://evil/system", "cpu=1")

    assert done.code == 1 and "has no argument 'connection'" in done.error
