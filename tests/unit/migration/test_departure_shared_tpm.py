"""The state of a TPM on shared storage is the only state of its VM."""

from dataclasses import replace

import libvirt
import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import sharing
from saltvirt.xml.domain import tpm

TPM = "<tpm model='tpm-crb'><backend type='emulator' version='2.0'/></tpm>"


@pytest.mark.parametrize("how", ["declared", "a network file system", ""])
def test_a_source_leaves_it_to_the_target(end, conn, monkeypatch, tmp_path, how):
    monkeypatch.setattr(tpm, "_STATES", str(tmp_path / "swtpm"))
    shared = [str(tmp_path / "swtpm")] if how == "declared" else []
    if how == "a network file system":
        # Mocked: no test mounts one.
        monkeypatch.setattr(sharing, "_is_networked", lambda path: "swtpm" in path.parts)
    end.settings = end.hypervisor.settings = replace(end.settings, shared_paths=shared)
    end.make(conn)
    monkeypatch.setattr(lifecycle, "xml", lambda conn, name: _with_tpm(conn, name))
    end.begin()
    end.send()

    end.step("finish")

    assert end.kept_tpms == {"web1": how != ""}


def _with_tpm(conn, name):
    """Return a domain's XML, with a TPM: libvirt's test driver knows none."""
    return conn.lookupByName(name).XMLDesc(0).replace("</devices>", f"{TPM}</devices>")


@pytest.mark.parametrize("keeps_tpm", [True, False])
def test_libvirt_keeps_the_state_of_a_tpm_if_asked(monkeypatch, keeps_tpm):
    class Domain:
        flags = 0

        def isActive(self):  # noqa: N802 (libvirt's name)
            return False

        def undefineFlags(self, flags):  # noqa: N802 (libvirt's name)
            self.flags = flags

    vm = Domain()
    monkeypatch.setattr(lifecycle, "domain", lambda *_: vm)

    lifecycle.undefine_moved(None, "web1", with_snapshots=False, keep_tpm=keeps_tpm)

    assert bool(vm.flags & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM) is keeps_tpm
    assert vm.flags & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
