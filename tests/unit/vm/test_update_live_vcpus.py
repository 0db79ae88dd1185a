"""How many CPUs a running VM gets is tried until it has them, and waits for no start then."""

import libvirt
import pytest
from saltvirt.vm.update.host import apply, request
from test_update_calls import DEFAULTS
from updatekit import DEFINED, IDLE

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory>
<vcpu current='1'>4</vcpu><os><type arch='i686'>hvm</type></os>
<on_reboot>restart</on_reboot></domain>"""


@pytest.fixture
def update(hypervisor):
    """Return a function that updates a VM which runs with one CPU of four."""
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM).create()

        def call(**asked):
            given = {**DEFAULTS, "stop_on_reboot": None, **asked}
            wanted = request.from_call(hypervisor.settings, "web1", given)
            return apply.update(hypervisor.context, wanted)

        yield call


@pytest.mark.parametrize(("cpu", "again"), [(4, 4), ({"current": 3}, {"current": 3, "maximum": 4})])
def test_what_libvirt_has_refused_is_tried_again(update, monkeypatch, cpu, again):
    def refuse(*_given):
        raise libvirt.libvirtError("no room for it")

    with monkeypatch.context() as then:
        then.setattr(libvirt.virDomain, "setVcpusFlags", refuse)
        assert update(cpu=cpu) == {**DEFINED, "restart": ["cpu"], "errors": ["no room for it"]}
        assert update(cpu=cpu) == {**IDLE, "errors": ["no room for it"], "restart": ["cpu"]}

    assert update(cpu=again) == {**IDLE, "cpu": True}
    assert update(cpu=again) == IDLE


def test_a_number_of_cpus_alone_waits_for_no_start(update):
    assert update(cpu={"current": 3}) == {**DEFINED, "cpu": True}
    assert update(cpu={"current": 2, "tuning": {"shares": 5}})["restart"] == ["cpu"]


def test_what_a_call_says_beside_it_and_the_vm_has_waits_for_no_start(update):
    assert update(cpu={"current": 3, "maximum": 4}) == {**DEFINED, "cpu": True}
    assert update(mem={"boot": 64, "current": 32}) == {**DEFINED, "mem": True}
    # These do wait.
    assert update(cpu={"current": 2, "maximum": 5}) == {**DEFINED, "cpu": True, "restart": ["cpu"]}
    asked = {"boot": 128, "current": 48}
    assert update(mem=asked) == {**DEFINED, "mem": True, "restart": ["mem"]}


def test_a_call_that_says_no_number_leaves_the_cpus_that_run(update):
    update(cpu=4, live=False)

    assert update(cpu={"tuning": {"shares": 5}}) == {**DEFINED, "restart": ["cpu"]}
    assert update(mem=64) == IDLE
