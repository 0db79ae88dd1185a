"""What a disk is to grow by is noted once, and only if it has grown."""

import subprocess

import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.update.host import apply, request
from saltvirt.xml.edit import readdomain
from test_update_calls import DEFAULTS
from updatekit import DEFINED, IDLE

VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory>
<metadata><saltvirt:vm xmlns:saltvirt='urn:saltvirt:1' disk_mib='8'/></metadata>
<os><type arch='i686'>hvm</type></os><on_reboot>restart</on_reboot><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
<source file='{}'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def update(hypervisor, tmp_path, monkeypatch):
    """Return a function that wants the disk of a running VM to have 16 MiB; it has 8."""
    path = tmp_path / "web1_system.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "8M"], check=True)
    monkeypatch.setattr(apply.changing, "disk_size", lambda *_: 8 << 20)
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format(path)).create()

        def call(**asked):
            disks = [{"name": "system", "size": 16}]
            given = {**DEFAULTS, "stop_on_reboot": None, "disks": disks, **asked}
            answer = apply.update(
                hypervisor.context, request.from_call(hypervisor.settings, "web1", given)
            )
            answer.pop("diff", None)
            return answer, readdomain.describe_notes(
                readdomain.domain(lifecycle.inactive_xml(conn, "web1"))
            )["disk_mib"]

        yield call


def test_a_disk_that_waits_for_the_vm_to_stop_is_not_noted_each_time(update):
    for _time in range(2):
        answer, noted = update(live=False)
        assert (answer["definition"], noted) == (False, 8)
        assert answer["errors"] == ["disks vda grow while the VM is stopped, or with live=True"]


def test_a_disk_that_libvirt_does_not_grow_is_not_noted_each_time(update, monkeypatch):
    monkeypatch.setattr(apply.changing, "resize_disk", lambda *_: "a job holds it")

    for _time in range(2):
        assert update() == ({**IDLE, "errors": ["a job holds it"]}, 8)

    answer, noted = update(mem=32)
    assert (answer["definition"], answer["errors"], noted) == (True, ["a job holds it"], 8)


def test_a_disk_that_grows_is_noted(update, monkeypatch):
    monkeypatch.setattr(apply.changing, "resize_disk", lambda *_: None)

    told, noted = update(test=True)
    assert noted == 8
    answer, noted = update()

    assert noted == 16
    assert answer == told == {**DEFINED, "disk": answer["disk"]} and answer["disk"]["updated"]
