"""What the driver of salt-cloud does in libvirt, on libvirt's test driver."""

import re

import libvirt
import pytest
from saltvirt.core.errors import LibvirtRefused, NoSuchVm, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import cloudvms, domainfiles, lifecycle
from saltvirt.xml import parse
from saltvirt.xml.edit import clone

TEST = HostSettings(uri="test:///default")
FULL = {"strategy": "full", "learn_addresses": False, "validate": True}
QUICK = {**FULL, "strategy": "quick"}
MAC = "52:54:00:aa:bb:01"
DISK = (
    "<disk type='file' device='disk'><driver name='qemu' type='{kind}'/><source file='{path}'/>"
    "<target dev='{target}' bus='virtio'/>{more}</disk>"
)
CDROM = (
    "<disk type='file' device='cdrom'><source file='/iso/x.iso'/><target dev='sda' bus='sata'/>"
    "<readonly/></disk>"
)
FILTER = "<filterref filter='no-arp-spoofing'/>"
REST = (
    "<interface type='bridge'><mac address='{mac}'/><source bridge='br0'/>{filter}</interface>"
    "<channel type='unix'><source mode='bind' path='/run/domain-base/agent'/>"
    "<target type='virtio' name='org.qemu.guest_agent.0'/></channel>"
    "<serial type='pty'><log file='/var/log/base.log'/><target port='0'/></serial>"
    "<serial type='file'><source path='/var/log/base.txt'/><target port='1'/></serial>"
)


@pytest.fixture
def conn():
    """A libvirt with a pool that has a volume of each format."""
    with connect.open_connection(TEST, readonly=False) as conn:
        pool = conn.storagePoolLookupByName("default-pool")
        for kind in ("qcow2", "raw"):
            pool.createXML(clone.volume(f"base.{kind}", 1 << 20, kind))
        yield conn


@pytest.fixture
def base(conn):
    """Return a function that defines the base domain."""

    def define(*disks):
        devices = "".join(disks) + REST.format(mac=MAC, filter=FILTER)
        return conn.defineXML(
            "<domain type='test'><name>base</name><description>golden</description>"
            "<memory unit='MiB'>64</memory><os><type>hvm</type>"
            "<loader readonly='yes' type='pflash'>/fw/code.fd</loader>"
            "<nvram template='/fw/vars.fd'>/nvram/base_VARS.fd</nvram></os>"
            f"<devices>{devices}</devices></domain>"
        )

    return define


def disk(kind="qcow2", target="vda", path=None, more=""):
    """Return the XML of a disk of the base."""
    path = path or f"/default-pool/base.{kind}"
    return DISK.format(kind=kind, target=target, path=path, more=more)


def names(conn):
    """Return the names of the volumes."""
    return {v.name() for v in conn.storagePoolLookupByName("default-pool").listAllVolumes()}


def definition(conn, name):
    """Return a VM's definition."""
    return parse(conn.lookupByName(name).XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))


@pytest.mark.parametrize(
    ("options", "backing"), [(FULL, None), (QUICK, "/default-pool/base.qcow2")]
)
def test_a_clone_runs_with_disks_of_its_own(conn, base, options, backing):
    base(disk(), disk("raw", "vdb"), CDROM)

    cloudvms.clone(conn, "base", "web1", **options)

    assert conn.lookupByName("web1").isActive()
    root = definition(conn, "web1")
    first, second, cdrom = [source.get("file") for source in root.findall("devices/disk/source")]
    assert cdrom == "/iso/x.iso"
    for path, kind, backing_path in ((first, "qcow2", backing), (second, "raw", None)):
        volume = conn.storageVolLookupByPath(path)
        assert volume.name().startswith("base-") and volume.name().endswith(f".{kind}")
        xml = volume.XMLDesc(0)
        assert parse(xml).find("target/format").get("type") == kind
        assert clone.backing(xml) == backing_path
        assert volume.info()[1] == 1 << 20
    assert names(conn) >= {"base.qcow2", "base.raw"} and len(names(conn)) == 4


def test_a_clone_has_nothing_that_must_not_be_there_twice(conn, base):
    original = base(disk())

    cloudvms.clone(conn, "base", "web1", **FULL)

    root = definition(conn, "web1")
    assert root.findtext("description") == "Cloned from base"
    assert root.findtext("uuid") != original.UUIDString()
    assert root.find("devices/interface/mac").get("address") != MAC
    assert root.find("devices/channel/source") is None
    assert root.find("devices/serial/log") is None
    assert {serial.get("type") for serial in root.findall("devices/serial")} == {"pty"}
    assert root.find("os/nvram").text is None
    assert root.find("os/nvram").get("template") == "/fw/vars.fd"
    assert root.find("devices/interface/filterref").get("filter") == "no-arp-spoofing"
    assert definition(conn, "base").find("devices/interface/mac").get("address") == MAC


@pytest.mark.parametrize(
    "variables",
    ["/nvram/base_VARS.fd", "<source file='/nvram/base_VARS.fd'/>", "<source dev='/dev/vars'/>"],
)
def test_a_clones_firmware_keeps_its_variables_for_itself(variables):
    kind = "block" if "dev=" in variables else "file"
    base = (
        "<domain type='test'><name>base</name><os><type>hvm</type>"
        f"<nvram template='/fw/vars.fd' type='{kind}'>{variables}</nvram></os></domain>"
    )

    nvram = parse(clone.domain(base, "web1", "base", {}, learn_addresses=False)).find("os/nvram")

    assert (dict(nvram.attrib), nvram.text, len(nvram)) == ({"template": "/fw/vars.fd"}, None, 0)


def test_libvirts_filter_learns_addresses_if_it_is_asked_to():
    devices = REST.format(mac=MAC, filter=FILTER)
    text = f"<domain><name>base</name><devices>{devices}</devices></domain>"

    root = parse(clone.domain(text, "web1", "base", {}, learn_addresses=True))

    (filterref,) = root.findall("devices/interface/filterref")
    assert filterref.get("filter") == "clean-traffic"
    assert filterref.find("parameter").attrib == {"name": "CTRL_IP_LEARNING", "value": "any"}


def test_a_base_that_runs_is_not_cloned(conn, base):
    base(disk()).create()

    with pytest.raises(LibvirtRefused, match="'base' is running.*shut it down first"):
        cloudvms.clone(conn, "base", "web1", **FULL)


@pytest.mark.parametrize(
    ("bad_disk", "reason"),
    [
        (disk(path="/elsewhere/x.qcow2", target="vdb"), "in no active storage pool"),
        (disk("vmdk", "vdb"), "format 'vmdk' is not copied"),
        (
            "<disk type='block' device='disk'><source dev='/dev/sdb'/>"
            "<target dev='vdb' bus='virtio'/></disk>",
            "disk vdb is of type block",
        ),
    ],
)
def test_a_disk_that_cannot_be_copied_is_refused_and_nothing_is_left(conn, base, bad_disk, reason):
    base(disk(), bad_disk)
    before = names(conn)

    with pytest.raises(StorageError, match=reason):
        cloudvms.clone(conn, "base", "web1", **FULL)

    assert names(conn) == before
    assert "web1" not in {domain.name() for domain in conn.listAllDomains()}


def test_a_disk_that_may_be_shared_is(conn, base):
    base(disk(), disk("raw", "vdb", more="<shareable/>"))

    cloudvms.clone(conn, "base", "web1", **FULL)

    assert len(names(conn)) == 3


def test_a_clone_that_libvirt_refuses_leaves_nothing(conn, base):
    base(disk())
    before = names(conn)

    with pytest.raises(libvirt.libvirtError):
        cloudvms.clone(conn, "base", "bad/name", **FULL)

    assert names(conn) == before
    assert {domain.name() for domain in conn.listAllDomains()} == {"test", "base"}


def test_a_clone_is_destroyed_with_its_disks_and_its_base_keeps_its_own(conn, base):
    base(disk())
    cloudvms.clone(conn, "base", "web1", **QUICK)

    cloudvms.destroy(conn, "web1")

    assert {domain.name() for domain in conn.listAllDomains()} == {"test", "base"}
    assert names(conn) == {"base.qcow2", "base.raw"}


def test_the_base_of_a_clone_that_is_an_overlay_keeps_its_disk(conn, base):
    base(disk())
    cloudvms.clone(conn, "base", "web1", **QUICK)
    conn.lookupByName("web1").destroy()

    cloudvms.destroy(conn, "base")

    assert "base.qcow2" in names(conn)


def test_the_base_of_a_volume_that_libvirt_has_not_read_yet_stays(conn, base, monkeypatch):
    base(disk())
    real_refresh = libvirt.virStoragePool.refresh

    def refresh(pool, flags=0):
        if "snapped.qcow2" not in pool.listVolumes():
            pool.createXML(
                clone.volume("snapped.qcow2", 1 << 20, "qcow2", "/default-pool/base.qcow2"), 0
            )
        return real_refresh(pool, flags)

    monkeypatch.setattr(libvirt.virStoragePool, "refresh", refresh)

    cloudvms.destroy(conn, "base")

    assert "base.qcow2" in names(conn)


@pytest.mark.parametrize("target", ["hyper2", "another host, as libvirt says"])
def test_a_vm_that_has_moved_keeps_the_disks_that_another_host_may_have_too(
    conn, base, monkeypatch, target
):
    base(disk())
    if target == "hyper2":
        lifecycle.mark_moved(conn, "base", target)
    else:
        # As after "virsh migrate", which leaves the definition.
        monkeypatch.setattr(lifecycle, "is_migrated", lambda _conn, name: name == "base")

    with pytest.raises(LibvirtRefused, match=f"has moved to {target}, and only its definition"):
        cloudvms.destroy(conn, "base")

    assert "base.qcow2" in names(conn) and lifecycle.is_defined(conn, "base")


def test_a_disk_that_another_vm_has_through_a_link_stays(conn, tmp_path):
    (tmp_path / "vms").mkdir()
    (tmp_path / "link").symlink_to("vms")
    pool = conn.storagePoolDefineXML(
        f"<pool type='dir'><name>link</name><target><path>{tmp_path}/link</path></target></pool>"
    )
    pool.create()
    pool.createXML(clone.volume("data.raw", 1 << 20, "raw"))
    vm = "<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os>"
    for name, folder in (("web1", "link"), ("web2", "vms")):
        path = f"{tmp_path}/{folder}/data.raw"
        devices = f"<devices>{disk('raw', path=path)}</devices></domain>"
        conn.defineXML(vm.format(name) + devices)

    cloudvms.destroy(conn, "web1")
    assert pool.listVolumes() == ["data.raw"]

    cloudvms.destroy(conn, "web2")
    assert pool.listVolumes() == ["data.raw"], "no pool has it by that name"
    pool.storageVolLookupByName("data.raw").delete(0)
    pool.destroy()
    pool.undefine()


def test_a_missing_vm_cannot_be_destroyed(conn):
    with pytest.raises(NoSuchVm):
        cloudvms.destroy(conn, "nobody")


def test_nodes_are_what_salt_cloud_shows(conn):
    conn.lookupByName("test").suspend()

    assert cloudvms.nodes(conn) == {
        "test": {
            "id": "6695eb01-f6a4-8304-79aa-97f2502e193f",
            "image": "",
            "size": "",
            "state": "paused",
            "private_ips": [],
            "public_ips": [],
        }
    }


def test_an_address_is_that_of_a_running_vm(conn, base):
    base(disk())
    assert cloudvms.address(conn, "base", "ip-learning") is None
    cloudvms.clone(conn, "base", "web1", **FULL)

    assert cloudvms.address(conn, "web1", "ip-learning").startswith("192.")


@pytest.mark.parametrize("backing", [None, "/pool/a <b>.qcow2"])
def test_the_xml_of_a_volume_is_valid(validate, backing):
    text = clone.volume("web1-x.qcow2", 1 << 20, "qcow2", backing)

    validate([text], "storagevol")
    assert clone.backing(text) == backing


@pytest.fixture
def undefined(monkeypatch):
    """Return the list of ``keep_nvram`` of each VM that is undefined."""
    undefine, keep_flags = lifecycle.undefine, []

    def record(conn, name, *, keep_nvram=False):
        keep_flags.append(keep_nvram)
        undefine(conn, name, keep_nvram=keep_nvram)

    monkeypatch.setattr(lifecycle, "undefine", record)
    return keep_flags


@pytest.mark.parametrize("has_variables", [True, False])
def test_a_clone_that_does_not_start_leaves_the_variables_of_an_earlier_vm(
    conn, base, undefined, monkeypatch, has_variables
):
    # libvirt's test driver reports no variables file of any VM.
    monkeypatch.setattr(
        domainfiles, "has_variables", lambda _conn, name: has_variables and name == "web1"
    )

    def refuses(*_args):
        raise LibvirtRefused("no start")

    monkeypatch.setattr(lifecycle, "start", refuses)
    base(disk())
    with pytest.raises(LibvirtRefused, match="no start"):
        cloudvms.clone(conn, "base", "web1", **{**QUICK, "validate": False})

    assert undefined == [has_variables]


def test_a_clone_whose_variables_are_unknown_is_undone_completely(
    conn, base, undefined, monkeypatch
):
    def fails(*_args):
        raise LibvirtRefused("no answer")

    monkeypatch.setattr(domainfiles, "has_variables", fails)
    base(disk())
    with pytest.raises(LibvirtRefused, match="no answer"):
        cloudvms.clone(conn, "base", "web1", **{**QUICK, "validate": False})

    assert undefined == [True] and "web1" not in {domain.name() for domain in conn.listAllDomains()}


@pytest.mark.parametrize(("file_stem", "is_kept"), [("base", True), ("other", False)])
def test_variables_that_another_vm_uses_too_stay(conn, base, undefined, file_stem, is_kept):
    base(disk())
    text = conn.lookupByName("base").XMLDesc(0)
    # As by virsh dumpxml and define.
    copied = text.replace("<name>base", "<name>copy").replace("/base_VARS", f"/{file_stem}_VARS")
    conn.defineXML(re.sub("<uuid>.*</uuid>", "", copied))

    cloudvms.destroy(conn, "copy")

    assert undefined == [is_kept]


class Guest:
    """Stand for a running VM with an agent; libvirt's test driver has no agent."""

    def __init__(self, *addresses):
        self._addresses, self.limit_s = addresses, None

    def name(self):
        """Return its name."""
        return "web1"

    def state(self):
        """Return that it runs."""
        return [libvirt.VIR_DOMAIN_RUNNING, 0]

    def agentSetResponseTimeout(self, seconds):  # noqa: N802 (libvirt's own name)
        """Record the time limit of the agent."""
        self.limit_s = seconds

    def interfaceAddresses(self, _source):  # noqa: N802 (libvirt's own name)
        """Return the addresses that the agent reports."""
        kind = libvirt.VIR_IP_ADDR_TYPE_IPV4
        return {"eth0": {"addrs": [{"addr": address, "type": kind} for address in self._addresses]}}


@pytest.mark.parametrize(
    "text", ["1.2.3.4; id", "$(id).example.com", "-oProxyCommand=id", "127.0.0.1", "0.0.0.0"]
)
def test_an_agents_answer_is_an_address_or_ignored(monkeypatch, text):
    guest = Guest(text, "192.0.2.7")
    monkeypatch.setattr(cloudvms, "domain", lambda _conn, _name: guest)

    assert cloudvms.address(None, "web1", "qemu-agent") == "192.0.2.7"
    # The agent has a few seconds; without a limit libvirt waits forever.
    assert 0 < guest.limit_s < 60
    assert cloudvms.address(None, "web1", "ip-learning") == "192.0.2.7"
