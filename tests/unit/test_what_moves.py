"""What a host says of VMs that are to move, and what keeps them: on libvirt's test driver."""

import pytest
from saltvirt.config import HostSettings
from saltvirt.kvm import connect, lifecycle
from saltvirt.ops import moving
from saltvirt.xml import read

TEST = HostSettings(uri="test:///default")
VM = """<domain type='test'><name>m1</name><uuid>4dea22b3-1d52-d8f3-2516-782e98ab3fa0</uuid>
<memory>1024</memory><os{efi}><type arch='i686'>hvm</type>{os}</os>{inside}
<devices>{devices}</devices></domain>"""


@pytest.fixture
def about():
    """A function that defines a VM, m1, and returns what its host says of it."""
    with connect.opened(TEST, readonly=False) as conn:

        def define(*, settings=TEST, state="stopped", **parts):
            dom = conn.defineXML(VM.format(**{**dict.fromkeys(("efi", "os", "inside", "devices"),
                                                              ""), **parts}))  # fmt: skip
            if state != "stopped":
                lifecycle.start(conn, "m1")
            if state == "saved":
                dom.managedSave(0)
            return moving.facts(conn, settings, "m1")["m1"]

        yield define
        lifecycle.destroy(conn, "m1")
        # The test driver does not know all flags that lifecycle.undefine takes.
        connect.domain(conn, "m1").undefineFlags(connect.libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)


def test_a_saved_state_stays_behind_so_its_vm_does_not_move(about):
    assert about()["obstacles"] == []

    (why,) = about(state="saved")["obstacles"]

    assert why.startswith("it has a saved state, which libvirt does not move; start it, or")
    assert "virsh managedsave-remove m1" in why


@pytest.mark.parametrize("nvram", ["<nvram>{}</nvram>",
                                   "<nvram type='file'><source file='{}'/></nvram>"])  # fmt: skip
def test_a_stopped_vm_does_not_lose_what_its_firmware_noted(about, tmp_path, nvram):
    path = tmp_path / "m1_VARS.fd"
    os = "<loader readonly='yes' type='pflash'>/usr/share/fw.fd</loader>" + nvram.format(path)
    shared = HostSettings(uri="test:///default", shared_paths=(str(tmp_path),))
    assert about(os=os)["obstacles"] == [], "it was never started"
    path.touch()

    (why,) = about(os=os)["obstacles"]

    assert why.startswith(f"its firmware's variables are in {path}, which does not move; start it")
    assert about(os=os, settings=shared)["obstacles"] == []
    assert about(os=os, state="running")["obstacles"] == []


@pytest.mark.parametrize(
    ("inside", "path"),
    [
        ("", "/var/lib/libvirt/qemu/nvram/m1_VARS.fd"),
        ("<nvram template='/usr/share/vars.fd'/>", "/var/lib/libvirt/qemu/nvram/m1_VARS.fd"),
        ("<loader stateless='yes'/>", None),
        ("<nvram type='network'><source protocol='rbd' name='a/b'/></nvram>", None),
        ("<nvram type='block'><source dev='/dev/vg/vars'/></nvram>", "/dev/vg/vars"),
    ],
)
def test_firmware_that_libvirt_chooses_has_its_variables_where_libvirt_puts_them(inside, path):
    root = read.domain(f"<domain><name>m1</name><os firmware='efi'>{inside}</os></domain>")

    assert read.firmware_variables(root) == path
    assert read.firmware_variables(read.domain("<domain><os/></domain>")) is None


def test_a_stopped_vm_does_not_lose_the_secrets_of_its_tpm(about):
    tpm = "<tpm model='tpm-crb'><backend type='{}' version='2.0'/></tpm>"

    (why,) = about(devices=tpm.format("emulator"))["obstacles"]

    assert why.startswith("its emulated TPM has its state on this host, which does not move; start")
    assert about(devices=tpm.format("emulator"), state="running")["obstacles"] == []
