"""A disk that grows while others come and go is that disk, whatever the guest calls it by then."""

import subprocess

import libvirt
from saltvirt.libvirt.domains import changing, lifecycle
from saltvirt.vm.update.host import apply, request
from saltvirt.xml import parse
from saltvirt.xml.domain import domain
from test_update_calls import DEFAULTS
from updatekit import XML


def test_a_disk_that_is_plugged_in_under_the_name_of_one_that_grows_is_left(
    hypervisor, tmp_path, monkeypatch
):
    small, big = (str(tmp_path / f"web1_{name}.qcow2") for name in ("system", "big"))
    for path, size in ((small, "8M"), (big, "64M")):
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, size], check=True)
    disks = [
        {"name": "system", "size": 16, "model": "scsi"},
        {"name": "big", "source_file": big, "model": "virtio"},
    ]
    asked = request.from_call(
        hypervisor.settings, "web1", {**DEFAULTS, "disks": disks, "detach": True}
    )
    with hypervisor.libvirt() as conn:
        text = XML.replace("<boot order='7'/>", "").replace("<boot dev='hd'/>", "")
        conn.defineXML(text.replace("/srv/web1_system.qcow2", small)).create()
        # What the guest has once all is plugged, which the test driver cannot do.
        running = iter([lifecycle.xml(conn, "web1")])
        monkeypatch.setattr(
            changing, "running", lambda *of: next(running, None) or lifecycle.inactive_xml(*of)
        )
        grown = []
        monkeypatch.setattr(changing, "disk_size", lambda *_: 8 << 20)
        monkeypatch.setattr(changing, "resize_disk", lambda _conn, _vm, *of: grown.append(of))
        monkeypatch.setattr(changing, "plug", lambda *_: None)

        said = apply.update(hypervisor.context, asked)

        flags = libvirt.VIR_DOMAIN_XML_INACTIVE
        now = domain.read(parse(conn.lookupByName("web1").XMLDesc(flags))).disks
        names = {one.path: one.target["dev"] for one in now}
        assert names[big] == "vda", "the name that the other one had"
        assert grown == [(names[small], 16 << 20)]
        assert [small in one for one in said["disk"]["updated"]] == [True]
