"""A display's password is taken away by null; a VM with a saved state gets changes later."""

import libvirt
import pytest
from saltvirt.vm.update.host import apply, request
from saltvirt.xml import parse
from test_update_calls import DEFAULTS
from updatekit import DEFINED, IDLE

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='i686'>hvm</type></os><on_reboot>restart</on_reboot>
<devices><graphics type='vnc' passwd='secret'/></devices></domain>"""


@pytest.fixture
def update(hypervisor):
    """Return a function that updates a VM with a display."""
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM)

        def call(**asked):
            given = {**DEFAULTS, "stop_on_reboot": None, **asked}
            answer = apply.update(
                hypervisor.context, request.from_call(hypervisor.settings, "web1", given)
            )
            answer.pop("diff", None)
            return answer

        call.domain = conn.lookupByName("web1")
        yield call
        del call.domain


def test_null_takes_a_password_from_a_display_and_silence_does_not(update):
    def told():
        xml = update.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
        return parse(xml).find("devices/graphics").get("passwd")

    update(graphics={"type": "vnc"})
    assert told() == "secret"
    given = {"type": "vnc", "password": None, "keymap": None}
    assert update(graphics=given) == DEFINED
    assert told() is None
    assert update(graphics=given) == IDLE


def test_what_a_vm_with_a_saved_state_is_given_waits_until_it_has_run(update):
    update.domain.create()
    update.domain.managedSave()

    assert update(cpu=4, mem=256, test=True)["restart"] == ["cpu", "mem"]
    assert update(cpu=4, mem=256)["restart"] == ["cpu", "mem"]
    assert "restart" not in update(cpu=4, mem=256)
    update.domain.managedSaveRemove()
    assert "restart" not in update(cpu=2)
