"""A disk that a guest wrote to is opened as it was defined, and leads to no file of the host."""

import subprocess

import libvirt
import pytest
from saltvirt.core.errors import BadArgument, ImageError, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.units import MIB
from saltvirt.seeding import identity
from saltvirt.storage import diskpaths

DOMAIN = """<domain type='test'><name>web1</name><memory unit='MiB'>8</memory><os><type>hvm</type>
</os><devices><disk type='file' device='disk'><driver name='qemu' type='raw'/>
<source file='{}'/><target dev='vda'/></disk></devices></domain>"""


def overlay(path, backing, *more):
    """Make a qcow2 image that names a backing file."""
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-u", *more, "-b", backing, path, "1M"]
    subprocess.run(list(map(str, argv)), check=True)
    return path


@pytest.fixture
def host(tmp_path):
    """A host with an image cache, on libvirt's test driver."""
    base = tmp_path / "images/base"
    base.mkdir(parents=True)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base / "a.qcow2", "1M"], check=True)
    return HostSettings(images=str(tmp_path / "images"), uri="test:///default")


def test_a_raw_disk_that_looks_like_an_overlay_of_a_host_file_stays_raw(host, tmp_path):
    disk = overlay(tmp_path / "web1.raw", "/etc/shadow", "-F", "raw")
    conn = libvirt.open(host.uri)
    defined = conn.defineXML(DOMAIN.format(disk))
    (tmp_path / "link").symlink_to(disk)
    try:
        assert diskpaths.opened_format(host, str(disk)) == "raw"
        assert diskpaths.opened_format(host, str(tmp_path / "link")) == "raw"
    finally:
        defined.undefine()
        conn.close()

    with pytest.raises(ImageError, match=r"names a backing file \('/etc/shadow'\)"):
        diskpaths.opened_format(host, str(disk))


@pytest.mark.parametrize(
    "backing",
    [
        "/etc/shadow",
        "../../../../../../../../etc/shadow",
        "base/../../secret",
        "/no/such/file",
        'json:{"driver":"raw","file":{"driver":"file","filename":"/etc/shadow"}}',
        "nbd:localhost:1",
        'json:{"node-name":"/../../../images/base/a.qcow2","driver":"file"}',
    ],
)
def test_no_disk_names_a_file_that_is_no_base_image(host, tmp_path, backing):
    (tmp_path / "secret").write_text("x")
    disk = overlay(tmp_path / "images/x.qcow2", backing, "-F", "raw")

    with pytest.raises(ImageError, match="no base image of this host, nor below virt:backing_path"):
        diskpaths.opened_format(host, str(disk))


def test_a_link_in_the_cache_leads_to_no_other_file(host, tmp_path):
    (tmp_path / "images/base/link").symlink_to("/etc/shadow")
    disk = overlay(tmp_path / "x.qcow2", tmp_path / "images/base/link", "-F", "raw")

    with pytest.raises(ImageError, match="no base image of this host"):
        diskpaths.opened_format(host, str(disk))


@pytest.mark.parametrize("backing", ["{}/images/base/a.qcow2", "images/base/a.qcow2"])
def test_an_overlay_of_a_base_image_may_be_opened(host, tmp_path, backing):
    disk = overlay(tmp_path / "x.qcow2", backing.format(tmp_path), "-F", "qcow2")

    assert diskpaths.opened_format(host, str(disk)) == "qcow2"


def test_the_operator_may_name_more_folders(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/b.raw").write_bytes(bytes(MIB))
    disk = overlay(tmp_path / "x.qcow2", tmp_path / "mine/b.raw", "-F", "raw")
    settings = HostSettings(
        images=str(tmp_path / "images"),
        uri="test:///default",
        backing_paths=[str(tmp_path / "mine")],
    )

    assert diskpaths.opened_format(settings, str(disk)) == "qcow2"
    assert not (tmp_path / "images").exists()


@pytest.mark.parametrize("fmt", ["raw", "qcow2"])
def test_a_disk_that_a_qemu_has_open_is_refused(host, tmp_path, fmt):
    disk = tmp_path / f"web1.{fmt}"
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, disk, "8M"], check=True)
    if fmt == "raw":
        subprocess.run(["mkfs.ext4", "-q", disk], check=True)
    argv = ["qemu-io", "-f", fmt, disk]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as qemu:
        qemu.stdin.write(b"info\n")
        qemu.stdin.flush()
        qemu.stdout.read(8)  # it prompts when it has opened the disk
        with pytest.raises(StorageError, match="is open in another program; .* stop it first"):
            diskpaths.opened_format(host, str(disk))
        qemu.stdin.close()

    assert diskpaths.opened_format(host, str(disk)) == fmt


def test_what_cannot_be_opened_is_refused(host, tmp_path):
    with pytest.raises((ImageError, StorageError), match="does not exist"):
        diskpaths.opened_format(host, str(tmp_path / "nothing"))


def test_a_minion_has_the_id_that_its_key_is_for(host, tmp_path):
    context = Context(settings=host, opts={"master": "10.0.0.1", "pki_dir": str(tmp_path)})

    with pytest.raises(BadArgument, match="its id is 'web2', but the minion will be 'web1'"):
        identity.identity(context, "web1", {"id": "web2"}, (None, None))
    made = identity.identity(context, "web1", {"id": "web1"}, (None, None))
    assert made.id == made.config["id"] == "web1"
