"""What a host says of VMs that are to move, and what keeps them: on libvirt's test driver."""

import pytest
from saltvirt.config import HostSettings
from saltvirt.kvm import connect, lifecycle
from saltvirt.ops import moving

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
