"""Foreign domains: all of them can be read, and only this project's parts are changed."""

import copy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle
from saltvirt.seeding import credentials
from saltvirt.xml import METADATA_NS, element, parse, to_text
from saltvirt.xml.domain import disk, domain, metadata
from saltvirt.xml.edit import copied, newerfeatures, readdomain

DATA = Path(__file__).resolve().parents[2] / "data"
PATHS = [*sorted((DATA / "foreign").glob("*.xml")), DATA / "generations" / "running13.xml"]
TEXTS = {path.stem: path.read_text() for path in PATHS}
READERS = (
    readdomain.nics,
    readdomain.macs,
    readdomain.links,
    readdomain.graphics,
    readdomain.loader,
    readdomain.boot_files,
    readdomain.firmware_variables,
    readdomain.disk_sources,
    readdomain.lifecycle_actions,
    readdomain.describe_notes,
    readdomain.cpu,
    newerfeatures.find_newer_features,
)
TEST = HostSettings(uri="test:///default")


def root_of(name):
    """Return a parsed domain."""
    return readdomain.domain(TEXTS[name])


def test_libvirt_itself_takes_what_these_tests_call_a_domain(validate):
    validate(text for name, text in TEXTS.items() if name != "running13")


def test_a_desktop_of_virt_manager_is_read():
    content = domain.read(root_of("windows"))

    assert content.memory.size_kib == content.memory.current_kib == 8 * 2**20
    assert (content.memory.maximum_kib, content.memory.slots) == (32 * 2**20, "16")
    assert content.memory.backing.hugepages[0].size_kib == 2**20
    assert content.memory.backing.allocation == {"mode": "immediate", "threads": "4"}
    assert content.vcpus.attributes == {"placement": "static", "cpuset": "0-7", "current": "4"}
    assert content.cpu.model.name == "EPYC-Milan"
    assert content.cpu.features == {"topoext": "require", "svm": "disable"}
    assert content.notes == metadata.Notes()
    assert content.os.loader.attributes["secure"] == "yes"
    assert content.disks[0].driver["queues"] == "4"
    assert content.interfaces[0].on == "default"
    assert [device.element for device in content.chardevs] == ["serial", "console", "channel"]
    assert domain.read(root_of("storage")).rngs[0].path is None


def test_a_desktop_is_shown_with_its_parts():
    root = root_of("windows")

    system, cd = readdomain.disk_sources(root)
    assert system["backing"] == {"path": "/var/lib/libvirt/images/win11.qcow2", "format": "qcow2"}
    assert (cd["path"], cd["format"], cd["is_readonly"]) == (None, "raw", True)
    assert readdomain.nics(root)["52:54:00:6b:3c:58"]["driver"]["rx_queue_size"] == "512"
    assert readdomain.nics(root)["52:54:00:6b:3c:58"]["target"] == "vnet3"
    assert readdomain.loader(root) == {
        "path": "/usr/share/OVMF/OVMF_CODE_4M.ms.fd",
        "readonly": "yes",
        "secure": "yes",
        "type": "pflash",
    }
    assert readdomain.firmware_variables(root) == "/var/lib/libvirt/qemu/nvram/win11_VARS.fd"
    assert readdomain.graphics(root)["listen"] == "127.0.0.1"
    assert readdomain.lifecycle_actions(root)["on_crash"] == "coredump-destroy"
    assert readdomain.cpu(root)[0] == "custom"


def test_every_kind_of_storage_has_a_place():
    assert {
        disk_["target"]: disk_["path"] for disk_ in readdomain.disk_sources(root_of("storage"))
    } == {
        "vda": "rbd:pool/image",
        "sda": "iscsi:iqn.2013-07.com.example:iscsi-nopool/2",
        "hda": "blk-pool0/blk-pool0-vol0",
        "vdb": "/dev/vg/data",
        "fda": "/var/somefiles",
        "vdc": None,
        "vdd": None,
    }


def test_every_kind_of_network_is_distinguished():
    root = root_of("storage")

    assert readdomain.links(root) == {
        "bridges": ["br0"],
        "networks": [],
        "links": ["eth0", "ovsbr"],
        "bridge_vlans": True,
    }
    assert len(readdomain.macs(root)) == len(readdomain.nics(root)) == 5
    assert readdomain.nics(root)["52:54:00:6d:90:02"]["virtualport"] == {"type": "802.1Qbh"}
    assert domain.read(root_of("storage")).interfaces[3].address["slot"] == "0x07"


def test_a_domain_with_next_to_nothing_is_read():
    root = root_of("bare")
    content = domain.read(root)

    assert (content.memory.size_kib, content.vcpus.maximum, content.cpu) == (4096, "1", None)
    assert readdomain.cpu(root) == (None, None)
    assert readdomain.loader(root) == {"path": "None"}
    assert (
        readdomain.boot_files(root) == readdomain.macs(root) == readdomain.disk_sources(root) == []
    )


def test_firmware_variables_beside_a_source():
    assert readdomain.firmware_variables(root_of("arm")) == "/srv/nvram/arm1_VARS.fd"
    assert readdomain.loader(root_of("arm")) == {"path": "None", "secure": "no"}


ODD = st.sampled_from(["", "x", "-1", "yes", "99999999999999999999", "é", "a/b", " "])


def spoil(root, draw):
    """Remove, double or rename an element, or damage its attributes or its text."""
    parent = draw(st.sampled_from([parent_ for parent_ in root.iter() if len(parent_)]))
    place = draw(st.integers(0, len(parent) - 1))
    child, kind = parent[place], draw(st.integers(0, 5))
    if kind == 0:
        parent.remove(child)
    elif kind == 1:
        parent.insert(place, copy.deepcopy(child))
    elif kind == 2:
        child.tag = draw(st.sampled_from(["later", "{urn:x}source", "source", "target", "vlan"]))
    elif kind == 3:
        child.attrib.clear()
    elif kind == 4:
        child.text = draw(ODD)
    else:
        child.attrib.update(dict.fromkeys(child.attrib, draw(ODD)))


@given(data=st.data())
def test_nothing_in_a_domain_breaks_reading_it(data):
    root = root_of(data.draw(st.sampled_from(sorted(TEXTS))))
    for _ in range(data.draw(st.integers(1, 6))):
        spoil(root, data.draw)
        if not len(root):
            break

    text = ET.tostring(root, encoding="unicode")
    for reader in READERS:
        reader(readdomain.domain(text))
    content = domain.read(readdomain.domain(text))
    # The content can be built, and reads the same again.
    assert domain.read(parse(to_text(element.build(content)))) == content


_NIC = "<interface type='bridge'><mac address='52:54:00:00:00:0{}'/></interface>"
_HELD = "<hostdev mode='capabilities' type='net'><source><interface>eth0</interface></source>"
# The surroundings of a domain's NICs: elements with the same names, or the names of their parents.
AROUND = {
    "nothing": ("", ""),
    "a note": ("<metadata><x:a xmlns:x='x'><devices><interface /></devices></x:a></metadata>", ""),
    "another device": ("", f"{_HELD}</hostdev>"),
    "a prefix": ("<metadata/>", "<x:interface xmlns:x='x'></x:interface>"),
}


@pytest.mark.parametrize("surroundings", AROUND.values(), ids=AROUND)
def test_nics_alone_are_read_as_with_the_whole_domain(surroundings):
    note, device = surroundings
    nics = f"{_NIC.format(1)}<disk/>{_NIC.format(2)}"
    text = f"<domain>{note}<devices><disk/>{nics}{device}</devices></domain>"

    assert [*readdomain.nics_from_text(text)] == ["52:54:00:00:00:01", "52:54:00:00:00:02"]
    assert readdomain.nics_from_text(f"<domain>{note}<devices/></domain>") == {}
    assert readdomain.nics_from_text(f"<domain>{note}</domain>") == {}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_nics_alone_are_read_of_any_domain(text):
    assert readdomain.nics_from_text(text) == readdomain.nics(readdomain.domain(text))


@pytest.mark.parametrize("disk_mib", ["", "x", "-1", "1.5", "²"])
def test_a_malformed_note_is_ignored(disk_mib):
    note = f"<v:vm xmlns:v='{METADATA_NS}' disk_mib='{disk_mib}'><v:affinity/></v:vm>"
    root = parse(f"<domain><metadata>{note}</metadata></domain>")

    assert readdomain.describe_notes(root)["disk_mib"] == 0
    assert readdomain.describe_notes(root)["affinity"] == []


def test_a_note_of_a_later_version_is_kept():
    text = (
        f"<domain><metadata><v:vm xmlns:v='{METADATA_NS}' xmlns:o='urn:other' later='1' o:a='2'>"
        "<v:affinity>db</v:affinity><v:later>x</v:later><o:own>y</o:own></v:vm></metadata></domain>"
    )

    element = metadata.build_with_note(text, "stay", "yes")

    assert element.attrib == {"later": "1", "{urn:other}a": "2", "stay": "yes"}
    assert [part.tag for part in element] == ["affinity", "later", "{urn:other}own"]


def shape(element):
    """Return an element as plain data, its indentation left out."""
    rows = [shape(child) for child in element]
    return element.tag, dict(element.attrib), (element.text or "").strip(), rows


@pytest.mark.libvirt
def test_a_note_leaves_all_else_in_a_domain_as_it_was():
    other_parts = (
        "<metadata><a:app xmlns:a='urn:a' x='1'><a:b>t</a:b></a:app></metadata>",
        "<devices><disk type='file'><source file='/a'/><target dev='vda'/></disk></devices>",
    )
    text = TEXTS["bare"].replace("<memory>", f"{other_parts[0]}<memory>")
    text = text.replace("</domain>", f"{other_parts[1]}</domain>")
    with connect.open_connection(TEST, readonly=False) as conn:
        vm = conn.defineXML(text)
        before = parse(vm.XMLDesc(0))

        lifecycle.set_stay(conn, "bare", True)

        after = parse(vm.XMLDesc(0))
        vm.undefine()
    assert readdomain.describe_notes(after)["stay"] is True
    notes = after.find("metadata")
    notes.remove(notes.find(f"{{{METADATA_NS}}}vm"))
    assert shape(after) == shape(before)


@pytest.mark.parametrize("name", TEXTS)
def test_only_a_credential_is_added_to_a_domain(name):
    before = root_of(name)

    after = parse(credentials.add_credential(TEXTS[name], "/srv/x.credentials"))

    (added,) = [part for part in after.iterfind("sysinfo") if part.get("type") == "fwcfg"]
    after.remove(added)
    assert shape(after) == shape(before)


def copy_of(text):
    """Return the definition of a clone of a domain."""
    nics = len(parse(text).findall("devices/interface"))
    copy_settings = copied.CopySettings(
        name="web2",
        uuid="3c9a1d3e-6d5a-4d31-9f0e-2b1c4c1d0a77",
        notes=metadata.Notes(seed="/srv/web2_seed.iso"),
        macs=tuple(f"52:54:00:00:01:{index:02x}" for index in range(nics)),
        console_log=("/var/log/old", "/var/log/new"),
        sources={
            disk_.target[
                "dev"
            ]: f"{'' if disk_.type == 'volume' else '/srv/'}new-{disk_.target['dev']}"
            for disk_ in copied.disks(parse(text))
            if disk_.type in copied.TYPES
        },
        variables="/srv/web2_VARS.fd",
        seed=disk.seed("/srv/web2_seed.iso", "vdy"),
    )
    return copied.definition(text, copy_settings)


def test_the_clone_of_any_domain_is_one(validate):
    texts = [text for name, text in TEXTS.items() if name != "running13"]

    validate(map(copy_of, texts))


@pytest.mark.parametrize("name", TEXTS)
def test_a_clone_shares_nothing_that_must_be_unique(name):
    text = TEXTS[name]
    before, after = parse(text), parse(copy_of(text))

    assert (after.findtext("name"), readdomain.describe_notes(after)["seed"]) == (
        "web2",
        "/srv/web2_seed.iso",
    )
    assert readdomain.uuid(after) != readdomain.uuid(before) and not set(
        readdomain.macs(before)
    ) & set(readdomain.macs(after))
    for old, new in zip(copied.disks(before), copied.disks(after), strict=False):
        assert old.type not in copied.TYPES or old.path != new.path
    for graphics_ in after.iterfind("devices/graphics"):
        assert graphics_.get("port") is None
    assert after.find("devices/channel/source[@mode='bind']") is None
    # Elements that two VMs may share are unchanged.
    for part in ("cpu", "memory", "vcpu", "features", "clock"):
        assert [to_text(element_) for element_ in before.iterfind(part)] == [
            to_text(element_) for element_ in after.iterfind(part)
        ]


def test_a_copy_has_all_that_is_its_own_in_place_of_its_sources():
    text = (
        "<domain type='kvm'><name>web1</name><uuid>1b1c4c1d-6d5a-4d31-9f0e-2b1c4c1d0a77</uuid>"
        "<genid>x</genid><sysinfo type='smbios'><system><entry name='uuid'>x</entry></system>"
        "</sysinfo><devices>"
        "<interface type='bridge'><source bridge='br0'/><target dev='web'/><virtualport "
        "type='openvswitch'><parameters interfaceid='x'/></virtualport></interface>"
        "<serial type='tcp'><source mode='bind' host='127.0.0.1' service='5000'/></serial>"
        "<console type='pty'><log file='/var/log/old'/></console>"
        "<console type='pty'><log file='/var/log/theirs'/></console>"
        "<filesystem type='mount'><source dir='/srv'/><target dir='data'/></filesystem>"
        "<vsock><cid auto='no' address='3'/></vsock>"
        "<graphics type='vnc' port='5901' autoport='no' passwd='p'/>"
        "</devices></domain>"
    )
    root = parse(copy_of(text))

    assert root.findtext("sysinfo/system/entry") == root.findtext("uuid")
    assert root.find("genid").text is None
    assert root.find("devices/interface/target") is None
    assert root.find("devices/interface/virtualport/parameters").attrib == {}
    assert [log.get("file") for log in root.iterfind("devices/console/log")] == ["/var/log/new"]
    assert root.find("devices/vsock/cid").attrib == {"auto": "yes"}
    assert root.find("devices/graphics").attrib == {
        "type": "vnc",
        "autoport": "yes",
        "passwd": "p",
    }
    assert list(copied.describe_shared(parse(text))) == [
        "file system data is not copied",
        "a serial port or console listens on port 5000: only one of the VMs can run",
    ]


def test_a_copy_writes_to_no_file_of_the_host_that_its_source_writes_to():
    text = (
        "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
        "<name>web1</name><uuid>1b1c4c1d-6d5a-4d31-9f0e-2b1c4c1d0a77</uuid><devices>"
        "<serial type='file'><source path='/var/log/web1'/><target port='0'/></serial>"
        "<console type='file'><source path='/var/log/web1'/></console>"
        "<serial type='unix'><source mode='bind' path='/run/web1'/></serial>"
        "<serial type='unix'><source mode='connect' path='/run/hub'/></serial>"
        "<parallel type='dev'><source path='/dev/parport0'/></parallel>"
        "<shmem name='ring'/></devices><qemu:commandline><qemu:arg value='-fw_cfg'/>"
        "<qemu:arg value='name=opt/a,file=/srv/a.ign'/></qemu:commandline></domain>"
    )
    root = parse(copy_of(text))

    assert [
        (device.tag, device.get("type"), device.find("source") is None)
        for device in root.findall("devices/*")
        if device.tag in ("serial", "console", "parallel")
    ] == [
        ("serial", "pty", True),
        ("console", "pty", True),
        ("serial", "pty", True),
        ("serial", "unix", False),
        ("parallel", "pty", True),
    ]
    replaced = " ".join(copied.describe_replaced_chardevs(parse(text)))
    assert (
        replaced.count("/var/log/web1") == 1
        and "/run/web1" in replaced
        and "/dev/parport0" in replaced
    )
    assert list(copied.describe_shared(parse(text))) == [
        "shared memory ring is not copied",
        "<qemu:commandline> gives QEMU /srv/a.ign, which is not copied",
    ]
    assert list(copied.obstacles(parse(text))) == []
    disk_ = text.replace("-fw_cfg", "-drive")
    assert "gives QEMU a disk" in next(copied.obstacles(parse(disk_)))
