"""A VM with UEFI that runs has no internal snapshot where its firmware's variables are raw."""

import pytest
from saltvirt.libvirt.domains import snapshots

DISK = "<disk type='file'><driver type='qcow2'/><source file='/x'/><target dev='vda'/></disk>"
RAW = (
    "<loader type='pflash'>/c</loader><nvram template='/t' format='raw'>/n</nvram>",
    "<loader type='pflash'>/c</loader><nvram template='/t'>/n</nvram>",
)
QCOW2 = "<loader type='pflash'>/c</loader><nvram template='/t' format='qcow2'>/n</nvram>"


class Host:
    """A host of QEMU's driver with one VM; the test driver has no firmware."""

    def __init__(self, version, boot, *, runs=True):
        self.getLibVersion = lambda: version
        self.getType = lambda: "QEMU"
        self.lookupByName = lambda _name: self
        self.isActive = lambda: runs
        devices = f"<devices>{DISK}</devices>"
        self.XMLDesc = lambda _flags: f"<domain><name>w</name><os>{boot}</os>{devices}</domain>"

    def why_not(self, *, is_external=False):
        return snapshots.why_not(self, "w", is_external=is_external)


@pytest.mark.parametrize("boot", RAW)
def test_raw_variables_are_named_with_what_helps(boot, monkeypatch):
    monkeypatch.setattr(snapshots.lifecycle, "saved", lambda _conn: set())
    reason = Host(11_003_000, boot).why_not()

    assert "variables is raw" in reason and "give external=True, or shut it down first" in reason
    assert Host(11_003_000, boot).why_not(is_external=True) is None
    assert Host(11_003_000, boot, runs=False).why_not() is None


@pytest.mark.parametrize("boot", [*RAW, QCOW2])
def test_an_old_libvirt_is_named(boot):
    reason = Host(9_000_000, boot).why_not()

    assert "this host's libvirt 9.0 takes no internal snapshot" in reason


@pytest.mark.parametrize("boot", ["", "<loader type='rom'>/c</loader>", QCOW2])
def test_other_firmware_is_not_refused(boot):
    assert Host(11_003_000, boot).why_not() is None
