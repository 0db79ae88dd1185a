"""The variables of a VM's firmware go with it, unless another VM has the same file."""

from types import SimpleNamespace

import libvirt
import pytest
from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.purge.host import purge
from saltvirt.xml.edit import readdomain

XML = """<domain type='test'><name>{}</name><memory>1024</memory><os><type>hvm</type>
<loader readonly='yes' type='pflash'>/CODE.fd</loader><nvram>{}</nvram></os></domain>"""


@pytest.mark.parametrize("how", [purge.purge, purge.undefine])
@pytest.mark.parametrize(("other", "is_kept"), [("link", True), ("other_VARS.fd", False)])
def test_variables_that_another_vm_has_too_stay(
    hypervisor, tmp_path, monkeypatch, how, other, is_kept
):
    (tmp_path / "web1_VARS.fd").touch()
    (tmp_path / "link").symlink_to("web1_VARS.fd")
    undefine, asked = lifecycle.undefine, []

    def noted(conn, name, *, keep_nvram=False, keep_tpm=False):
        asked.append((keep_nvram, keep_tpm))
        undefine(conn, name, keep_nvram=keep_nvram)

    monkeypatch.setattr(lifecycle, "undefine", noted)
    with hypervisor.libvirt() as conn:
        # Somebody has copied the definition, as by virsh dumpxml and define.
        for name, file in (("web1", "web1_VARS.fd"), ("copy", other)):
            lifecycle.define(conn, XML.format(name, tmp_path / file))
        how(conn, hypervisor.settings, "web1")

    assert asked == [(is_kept, False)]


@pytest.mark.parametrize(("how", "is_kept"), [(purge.purge, False), (purge.undefine, True)])
@pytest.mark.parametrize("kind", ["emulator", "passthrough"])
def test_the_state_of_an_emulated_tpm_stays_with_the_disks(
    hypervisor, monkeypatch, how, is_kept, kind
):
    tpm = f"<devices><tpm model='tpm-crb'><backend type='{kind}'/></tpm></devices></domain>"
    undefine, asked = lifecycle.undefine, []

    def noted(conn, name, *, keep_nvram=False, keep_tpm=False):
        asked.append(keep_tpm)
        undefine(conn, name, keep_nvram=keep_nvram)

    monkeypatch.setattr(lifecycle, "undefine", noted)
    with hypervisor.libvirt() as conn:
        lifecycle.define(conn, XML.format("web1", "/VARS.fd").replace("</domain>", tpm))
        how(conn, hypervisor.settings, "web1")

    assert asked == [is_kept and kind == "emulator"]


@pytest.mark.parametrize("is_kept", [False, True])
def test_libvirt_is_told_to_leave_the_state_of_a_tpm(monkeypatch, is_kept):
    flags = []
    monkeypatch.setattr(
        lifecycle, "domain", lambda _conn, _name: SimpleNamespace(undefineFlags=flags.append)
    )

    lifecycle.undefine(None, "web1", keep_tpm=is_kept)

    assert [bool(one & libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM) for one in flags] == [is_kept]


@pytest.mark.parametrize("is_there", [True, False])
def test_the_state_of_a_tpm_is_not_lost_by_a_libvirt_that_cannot_leave_it(
    hypervisor, monkeypatch, tmp_path, is_there
):
    monkeypatch.delattr(libvirt, "VIR_DOMAIN_UNDEFINE_KEEP_TPM")
    state = tmp_path / "tpm"
    if is_there:
        state.mkdir()
    monkeypatch.setattr(readdomain, "tpm_state", lambda _root: str(state))
    with hypervisor.libvirt() as conn:
        lifecycle.define(conn, XML.format("web1", "/VARS.fd"))
        if is_there:
            line = "has a TPM, whose state .*/tpm.* before 8.9 .* move that folder away .* again"
            with pytest.raises(LibvirtRefused, match=line):
                purge.undefine(conn, hypervisor.settings, "web1")
            assert lifecycle.is_defined(conn, "web1")
            state.rename(tmp_path / "kept")
        purge.undefine(conn, hypervisor.settings, "web1")
        assert not lifecycle.is_defined(conn, "web1")
