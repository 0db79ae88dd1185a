"""The variables of a VM's firmware are made from a template, in the template's format."""

import pytest
from saltvirt.xml import tag
from saltvirt.xml.domain import osboot
from saltvirt.xml.domain.osboot import Loader, Nvram, Os
from saltvirt.xml.edit import hostfiles

CODE = "/usr/share/OVMF/OVMF_CODE_4M.fd"
QCOW2 = {"template": "/t/VARS.qcow2", "templateFormat": "qcow2", "format": "qcow2"}


@pytest.mark.parametrize(
    ("template", "attributes"),
    [("/t/VARS.fd", {"template": "/t/VARS.fd"}), ("/t/VARS.qcow2", QCOW2)],
)
def test_a_template_in_qcow2_makes_variables_in_qcow2(template, attributes):
    changed = osboot.apply_changes(Os(), {"loader": CODE, "nvram": template})

    assert changed.nvram == Nvram(attributes=attributes)
    assert hostfiles.template(tag("domain", None, osboot.build(changed))) == template
    assert osboot.variables_format(changed) == attributes.get("format", "raw")


def test_without_firmware_there_is_no_template():
    assert hostfiles.template(tag("domain", None, osboot.build(Os()))) is None
    assert osboot.variables_format(Os()) is None


@pytest.mark.parametrize(
    ("system", "has_flash"),
    [
        (Os(), False),
        (Os(firmware="efi"), True),
        (Os(loader=Loader(path=CODE, attributes={"type": "pflash"})), True),
        (Os(loader=Loader(path=CODE, attributes={"type": "rom"})), False),
    ],
)
def test_firmware_in_flash_memory_is_recognized(system, has_flash):
    assert osboot.has_flash(system) is has_flash
