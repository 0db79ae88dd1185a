"""What virt.update defines is valid by libvirt's own schema."""

import pytest
from saltvirt.core.errors import VirtError
from saltvirt.vm.update.host import plan, request
from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import vcpu
from updatekit import BACK, CALLS, XML

DEFAULTS = dict.fromkeys(request.Request.__dataclass_fields__) | {
    "disk_profile": None,
    "nic_profile": None,
    "live": True,
    "test": False,
}


@pytest.fixture(scope="session")
def now():
    """A definition that the schema takes."""
    text = XML.replace("type='test'", "type='qemu'").replace("<boot dev='hd'/>", "")
    text = text.replace("<features>", "<clock offset='utc'/><features>")
    return parse(text.replace("arch='i686'", "arch='x86_64'"))


def test_every_call_leads_to_valid_xml(now, host, validate):
    texts = [to_text(now)]
    for asked in [*(one for one, _done in CALLS), *(one for pair in BACK for one in pair)]:
        given = {**DEFAULTS, **asked, "disks": None}
        wanted = request.from_call(host, "web1", {**given, "nic_profile": None})
        texts.append(to_text(plan.decide(now, wanted, host_devices=()).root))

    assert len(texts) > 50
    validate(texts)


def test_a_call_that_asks_nothing_is_no_change(now, host):
    decided = plan.decide(now, request.from_call(host, "web1", DEFAULTS))

    assert decided.changed == ()
    with pytest.raises(VirtError):
        request.from_call(host, "web1", {**DEFAULTS, "live": None})


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("<vcpu>3</vcpu>", 3),
        ("<vcpu current='1'>3</vcpu>", 1),
        (
            "<vcpu current='2'>3</vcpu><vcpus><vcpu id='0' enabled='yes' hotpluggable='no'/>"
            "<vcpu id='1' enabled='yes' hotpluggable='yes'/>"
            "<vcpu id='2' enabled='no' hotpluggable='yes'/></vcpus>",
            1,
        ),
    ],
)
def test_cpus_that_a_vm_was_started_with_stay(text, least):
    """What libvirt 9.0 says of such domains; it refuses fewer."""
    assert vcpu.least(parse(f"<domain type='qemu'>{text}</domain>")) == least
    assert vcpu.least(parse(f"<domain type='test'>{text}</domain>")) == 1
