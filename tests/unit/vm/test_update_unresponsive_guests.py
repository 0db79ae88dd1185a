"""A guest that does not follow a live change gets it at its next start, and that is said."""

import libvirt
import pytest
from saltvirt.libvirt.domains import changing
from saltvirt.vm.update.host import apply, request
from test_update_calls import DEFAULTS
from updatekit import DEFINED

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<os><type arch='i686'>hvm</type></os><on_reboot>restart</on_reboot></domain>"""


@pytest.fixture
def running(hypervisor, monkeypatch):
    """Return a function that updates a VM that runs; its guest has little time to follow."""
    monkeypatch.setattr(changing, "BALLOON_S", 0.3)
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM).create()

        def call(**asked):
            wanted = request.from_call(hypervisor.settings, "web1", {**DEFAULTS, **asked})
            return apply.update(hypervisor.context, wanted)

        yield call


def test_a_guest_without_a_balloon_driver_keeps_its_memory(running, monkeypatch):
    # As QEMU answers; the test driver's guests follow at once.
    monkeypatch.setattr(libvirt.virDomain, "setMemoryFlags", lambda *_: 0)

    assert running(mem=256) == {**DEFINED, "restart": ["mem"]}


def test_a_guest_that_gives_memory_back_slowly_follows(running, monkeypatch):
    sizes = iter([512 << 10, 512 << 10, 512 << 10, 400 << 10])
    monkeypatch.setattr(libvirt.virDomain, "setMemoryFlags", lambda *_: 0)
    monkeypatch.setattr(libvirt.virDomain, "info", lambda _dom: [1, 512 << 10, next(sizes), 1, 0])

    assert running(mem=256) == {**DEFINED, "mem": True}


def test_a_guest_that_stops_meanwhile_has_it_from_its_next_start(running, monkeypatch):
    def stop(dom, *_):
        dom.destroy()
        return 0

    monkeypatch.setattr(libvirt.virDomain, "setMemoryFlags", stop)

    assert running(mem=256) == {**DEFINED, "restart": ["mem"]}


def test_cpus_that_the_running_vm_has_not_wait(running, monkeypatch):
    monkeypatch.setattr(libvirt.virDomain, "setVcpusFlags", lambda *_: 0)

    assert running(cpu={"current": 1}) == {**DEFINED, "restart": ["cpu"]}


def test_what_the_guest_follows_is_done_at_once(running):
    assert running(mem=256, cpu={"current": 1}) == {**DEFINED, "cpu": True, "mem": True}
