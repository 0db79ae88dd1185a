"""The variables of a VM's firmware go with it, unless another VM has the same file."""

import pytest
from saltvirt.kvm import lifecycle
from saltvirt.ops import purge

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

    def noted(conn, name, *, keep_nvram=False):
        asked.append(keep_nvram)
        undefine(conn, name, keep_nvram=keep_nvram)

    monkeypatch.setattr(lifecycle, "undefine", noted)
    with hypervisor.libvirt() as conn:
        # Somebody has copied the definition, as by virsh dumpxml and define.
        for name, file in (("web1", "web1_VARS.fd"), ("copy", other)):
            lifecycle.define(conn, XML.format(name, tmp_path / file))
        how(conn, hypervisor.settings, "web1")

    assert asked == [is_kept]
