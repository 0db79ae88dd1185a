"""The definition of a VM after a rename: only names derived from the VM's change."""

import pytest
from saltvirt.xml import METADATA_NS
from saltvirt.xml.edit import readdomain, renamed

LOGS = ("/log/web1-console.log", "/log/db1-console.log")
VM = """<domain type='kvm' xmlns:saltvirt='{ns}'><name>db1</name><metadata>{notes}</metadata>
<os><type>hvm</type>{os}</os><devices>
<disk type='volume' device='disk'><source pool='fast' volume='{volume}'/><target dev='vda'/></disk>
<console type='pty'><log file='{log}'/></console></devices></domain>"""


def renamed_vm(*, notes="", os="", volume="web1_system", log=LOGS[0]):
    """Return the definition of a VM after its rename from web1 to db1; None if nothing changes."""
    text = VM.format(ns=METADATA_NS, notes=notes, os=os, volume=volume, log=log)
    new_text = renamed.definition(text, "web1", "db1", LOGS)
    return None if new_text is None else readdomain.domain(new_text)


def test_a_vm_without_notes_gets_the_name_of_its_volume():
    root = renamed_vm()

    assert readdomain.notes(root).former == ("web1",)
    assert root.find("devices/console/log").get("file") == LOGS[1]
    assert root.find("devices/disk/source").get("volume") == "web1_system"


def test_a_name_that_no_file_has_is_not_noted():
    assert renamed_vm(volume="system", log="/log/own.log") is None


def test_a_second_rename_keeps_the_name_that_the_files_have():
    notes = "<saltvirt:vm disk_mib='8'><saltvirt:former>app1</saltvirt:former></saltvirt:vm>"
    root = renamed_vm(notes=notes, volume="app1_system")

    assert readdomain.notes(root).former == ("app1",)
    assert readdomain.notes(root).disk_mib == 8


@pytest.mark.parametrize(
    ("os", "path"),
    [
        ("<nvram>/n/web1_VARS.fd</nvram>", "/n/db1_VARS.fd"),
        ("<nvram type='file'><source file='/n/web1_VARS.fd'/></nvram>", "/n/db1_VARS.fd"),
        ("<nvram>/n/web11_VARS.fd</nvram>", "/n/web11_VARS.fd"),
        ("<nvram>/n/shared.fd</nvram>", "/n/shared.fd"),
    ],
)
def test_the_firmwares_variables_are_named_after_the_vm(os, path):
    assert readdomain.firmware_variables(renamed_vm(os=os)) == path
