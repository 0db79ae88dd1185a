"""SCSI disks are at a controller that Linux has a driver for: libvirt's own choice is another."""

import pytest
from saltvirt.libvirt.domains import changing, lifecycle
from saltvirt.vm.update.host import apply, request
from saltvirt.xml import parse
from saltvirt.xml.domain import controller
from test_update_calls import DEFAULTS
from test_update_old_files import ALONE
from updatekit import XML

TEXT = XML.replace("<boot order='7'/>", "")
SYSTEM = {"name": "system", "size": 1}
VIRTIO = [("0", "virtio-scsi")]


def controllers(text):
    """Return the SCSI controllers of a domain's XML as ``[(index, model)]``."""
    return [(one.index, one.model) for one in controller.read_scsi(parse(text))]


def scsi(*names, **more):
    """Return disks of a call on the bus scsi."""
    return [{"name": name, "size": 1, "model": "scsi", **more} for name in names]


@pytest.mark.parametrize(
    ("disks", "wanted"),
    [
        (scsi("system"), VIRTIO),
        (scsi("system", "data"), VIRTIO),
        ([SYSTEM, {"name": "medium", "device": "cdrom", "model": "scsi"}], VIRTIO),
        ([SYSTEM], []),
        ([{"name": "system", "size": 1, "model": "sata"}], []),
    ],
)
def test_a_new_vm_has_the_controllers_of_its_disks(hypervisor, disks, wanted):
    with hypervisor.libvirt() as conn:
        hypervisor.init(disks=disks, **ALONE)

        assert controllers(lifecycle.secure_xml(conn, "web1")) == wanted


def updated(hypervisor, disks, *, was="", monkeypatch=None):
    """Have a VM with some controllers get disks; return its definition and what was plugged."""
    plugged = []
    if monkeypatch is not None:
        # The test driver plugs nothing in.
        monkeypatch.setattr(changing, "plug", lambda _conn, _vm, *step: plugged.append(step))
    asked = request.from_call(
        hypervisor.settings, "web1", {**DEFAULTS, "disks": disks, "detach": True}
    )
    with hypervisor.libvirt() as conn:
        domain = conn.defineXML(TEXT.replace("<devices>", f"<devices>{was}"))
        if monkeypatch is not None:
            domain.create()
        assert "errors" not in apply.update(hypervisor.context, asked)
        return lifecycle.inactive_xml(conn, "web1"), plugged


@pytest.mark.parametrize("model", ["lsilogic", "virtio-scsi", "virtio-transitional"])
def test_a_controller_that_a_vm_has_stays(hypervisor, model):
    was = f"<controller type='scsi' index='0' model='{model}'/>"
    disks = [{"name": "system", "size": 1}, *scsi("data")]

    text, _plugged = updated(hypervisor, disks, was=was)

    assert controllers(text) == [("0", model)]


def test_a_running_vm_gets_its_controller_before_the_disk(hypervisor, monkeypatch):
    disks = [{"name": "system", "size": 1}, *scsi("data")]

    text, plugged = updated(hypervisor, disks, monkeypatch=monkeypatch)

    assert controllers(text) == VIRTIO
    first, second = plugged
    assert first[0] == "attached" and 'model="virtio-scsi"' in first[1]
    assert second[0] == "attached" and 'bus="scsi"' in second[1]


@pytest.mark.parametrize(("target", "index"), [("sda", 0), ("sdo", 0), ("sdp", 1), ("sdaa", 1)])
def test_each_controller_has_fifteen_disks(target, index):
    """As QEMU's driver counts them; the test driver of libvirt takes seven."""
    disk = parse(f"<disk><target dev='{target}' bus='scsi'/></disk>")
    assert [one.index for one in controller.scsi([disk])] == [str(index)]


def test_the_address_of_a_disk_says_its_controller():
    disk = parse(
        "<disk><target dev='sda' bus='scsi'/><address type='drive' controller='2'/></disk>"
    )
    assert [one.index for one in controller.scsi([disk])] == ["2"]
