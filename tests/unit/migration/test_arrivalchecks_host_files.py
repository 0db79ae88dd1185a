"""A host that takes a VM looks for the files that its definition names beside its disks."""

from saltvirt.libvirt import connect
from saltvirt.migration.host import arrivalchecks
from saltvirt.vm.show.host import migrationinfo
from test_migration_host_resources import TEST

XML = (
    "<domain type='test'><name>m1</name><memory>1024</memory>"
    "<os><type>hvm</type><loader readonly='yes' type='pflash'>{0}/code.fd</loader>"
    "<nvram template='{0}/vars.fd'>{0}/m1_VARS.fd</nvram></os>"
    "<devices><emulator>/none/qemu</emulator>"
    "<serial type='file'><source path='{0}/logs/serial'/><target port='0'/></serial>"
    "<interface type='user'><rom file='{0}/pxe.rom'/></interface></devices></domain>"
)


def test_each_file_is_in_the_migration_info(tmp_path):
    (tmp_path / "vars.fd").touch()
    with connect.open_connection(TEST, readonly=False) as conn:
        vm = conn.defineXML(XML.format(tmp_path))
        try:
            files = migrationinfo.gather(conn, TEST, "m1")["m1"].files
            (tmp_path / "m1_VARS.fd").touch()
            later_files = migrationinfo.gather(conn, TEST, "m1")["m1"].files
        finally:
            vm.undefine()

    assert files == [
        str(tmp_path / "code.fd"),
        str(tmp_path / "pxe.rom"),
        f"{tmp_path}/logs/",
        str(tmp_path / "vars.fd"),
    ]
    # The variables file itself is sent, so the template is not needed.
    assert later_files == files[:3]


def test_a_host_names_what_it_lacks(tmp_path):
    (tmp_path / "there").touch()
    files = [str(tmp_path / "there"), str(tmp_path / "pxe.rom"), f"{tmp_path}/logs/"]

    assert list(arrivalchecks._missing_path_reasons(files)) == [
        f"there is no file {tmp_path}/pxe.rom there",
        f"there is no folder {tmp_path}/logs there",
    ]
