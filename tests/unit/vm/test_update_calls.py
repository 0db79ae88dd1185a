"""virt.update on libvirt's test driver: what a call changes, what it says, and that it is done."""

import importlib.util
import itertools
from pathlib import Path

import libvirt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument, LibvirtRefused, NoSuchVm, StorageError, VirtError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.power.host import startlock
from saltvirt.vm.update.host import apply, request
from saltvirt.xml import parse
from saltvirt.xml.domain import domain
from sizes import sizes
from updatekit import BACK, BAD, CALLS, DEFINED, IDLE, XML

MODULE = Path(__file__).resolve().parents[3] / "_modules/virt_change.py"
_spec = importlib.util.spec_from_file_location("virt_change", MODULE)
virt_change = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(virt_change)

_NAMES = virt_change.update.__code__.co_varnames[1:21]
DEFAULTS = dict(zip(_NAMES, virt_change.update.__defaults__, strict=True))


@pytest.fixture
def update(hypervisor, tmp_path):
    """Return a function that updates web1, which is defined on a host."""
    (tmp_path / "b.iso").write_bytes(bytes(4096))
    with hypervisor.libvirt() as conn:
        conn.defineXML(XML.replace("<boot order='7'/>", "").replace("<boot dev='hd'/>", ""))

        def call(name="web1", **asked):
            wanted = request.from_call(hypervisor.settings, name, {**DEFAULTS, **asked})
            answer = apply.update(hypervisor.context, wanted)
            # What a real call does not have.
            call.diff = answer.pop("diff", None)
            return answer

        call.conn, call.hypervisor = conn, hypervisor
        call.domain = conn.lookupByName("web1")
        yield call
        # What Hypothesis keeps of a test would keep the connection open, and the driver's world.
        del call.conn, call.domain


def definition(update):
    """Return what the definition says."""
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE
    return domain.read(parse(update.domain.XMLDesc(flags)))


def test_the_arguments_are_those_of_3006_in_its_order():
    names = virt_change.update.__code__.co_varnames[:21]
    # salt 3006.25, modules/virt.py, line 3485; autostart was False there.
    assert names == (
        *("name", "cpu", "mem", "disk_profile", "disks", "nic_profile", "interfaces", "graphics"),
        *("live", "boot", "numatune", "test", "boot_dev", "hypervisor_features", "clock"),
        *("serials", "consoles", "stop_on_reboot", "host_devices", "autostart"),
        # Ours.
        "detach",
    )
    given = {"cpu": 0, "mem": 0, "live": True, "test": False, "stop_on_reboot": False}
    given["detach"] = False
    assert {**dict.fromkeys(names[1:]), **given} == DEFAULTS


def holds(is_done, said):
    """Return whether a definition says what a call wants; one without the element does not."""
    try:
        return is_done(said)
    except (AttributeError, KeyError, TypeError):
        return False


@pytest.mark.parametrize(("asked", "is_done"), CALLS, ids=[str(one[0])[:60] for one in CALLS])
def test_a_call_changes_the_definition_as_it_says_and_the_next_changes_nothing(
    update, asked, is_done
):
    predicted = update(**asked, test=True)
    assert not holds(is_done, definition(update)) or "stop_on_reboot" in asked

    assert update(**asked) == predicted == DEFINED
    assert holds(is_done, definition(update))
    assert update(**asked) == IDLE
    assert update(**asked, test=True) == IDLE


def test_a_test_shows_the_lines_that_change_and_no_password(update):
    update(cpu=4, mem=256, graphics={"type": "vnc", "port": 5905}, test=True)

    gone = {one[1:].strip() for one in update.diff if one.startswith("-")}
    come = {one[1:].strip() for one in update.diff if one.startswith("+")}
    assert "<vcpu>2</vcpu>" in {one.replace(' placement="static"', "") for one in gone}
    assert "<vcpu>4</vcpu>" in {one.replace(' placement="static"', "") for one in come}
    assert '<memory unit="KiB">262144</memory>' in come
    shown = [one for one in come if one.startswith("<graphics")]
    assert (
        'port="5905"' in shown[0] and 'passwd="…"' in shown[0] and "secret" not in str(update.diff)
    )
    assert not any("<disk" in one or "<name>" in one for one in gone | come)
    update(cpu=2, mem=512, stop_on_reboot=None, test=True)
    assert update.diff == []
    update(cpu=4)
    assert update.diff is None


@pytest.mark.parametrize(("there", "back"), BACK, ids=str)
def test_null_removes_and_nothing_else_changes(update, there, back):
    update()
    before = definition(update)
    assert update(**there) == DEFINED

    assert update(**back) == DEFINED
    assert definition(update) == before
    assert update(**back) == IDLE


def test_what_nobody_asked_about_is_left_as_others_wrote_it(update):
    update(hypervisor_features={"kvm-hint-dedicated": True})
    update(hypervisor_features={"kvm-hint-dedicated": None}, mem=768)

    text = update.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    # The password that a display has: 3006 read the definition without it, and so lost it.
    assert "<hidden state='on'/>" in text and "passwd='secret'" in text
    assert "address='192.0.2.7'" in text


def test_what_qemus_driver_makes_of_cells_is_no_change(update):
    cells = {0: {"cpus": "0-1", "memory": "1g"}, 1: {"cpus": "4", "memory": "1g"}}
    given = {"cpu": {"maximum": 8, "numa": cells}, "mem": 64}
    assert update(**given) == DEFINED
    # It takes the sum of the cells for all memory, and gives the first the CPUs of none.
    text = update.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    filled = text.replace("<memory unit='KiB'>65536<", "<memory unit='KiB'>2097152<")
    filled = filled.replace("cpus='0-1'", "cpus='0-3,5-7'")
    assert filled.count("2097152") == filled.count("0-3,5-7") == 1
    update.conn.defineXML(filled)

    assert update(**given) == IDLE
    assert update(cpu={"numa": {**cells, 0: {"cpus": "0-2", "memory": "1g"}}}) == IDLE
    assert update(mem=128) == DEFINED


def test_ids_that_are_given_are_all_there_are(update):
    update(cpu={"mode": "custom", "model": "Haswell", "features": {"lahf": "require"}})
    update(cpu={"features": {"pcid": "disable"}})

    assert definition(update).cpu.features == {"pcid": "disable"}
    assert definition(update).cpu.model.name == "Haswell"


def test_uyunis_second_step(update):
    update(boot={"kernel": "/etc/hosts", "initrd": "/etc/hosts", "cmdline": "autoyast=1"})
    update(stop_on_reboot=True)
    second = {
        "boot": {"kernel": None, "initrd": None, "cmdline": None},
        "live": False,
        "stop_on_reboot": False,
    }

    assert update(**second) == DEFINED
    said = definition(update)
    assert (said.os.kernel, said.os.initrd, said.os.cmdline) == (None, None, None)
    assert said.on_reboot == "restart"
    assert update(**second) == IDLE


def test_stop_on_reboot_is_off_by_default_as_it_was(update):
    # tests/pytests/unit/modules/virt/test_domain.py of 3006.25, line 693.
    assert definition(update).on_reboot == "destroy"
    assert update(stop_on_reboot=None) == IDLE
    assert update() == DEFINED
    assert definition(update).on_reboot == "restart"


def test_autostart_is_left_alone_unless_it_is_given(update):
    update()
    update.domain.setAutostart(1)

    assert update() == IDLE
    assert update.domain.autostart()
    assert update(autostart=False, test=True) == {**IDLE, "autostart": False}
    assert update.domain.autostart()
    assert update(autostart=False) == {**IDLE, "autostart": False}
    assert not update.domain.autostart()
    assert update(autostart=False) == IDLE


def test_a_new_disk_is_made_grown_and_left_when_it_is_detached(update):
    asked = {"disks": [{"name": "system"}, {"name": "data", "size": 8}], "detach": True}
    update(**asked, test=True)
    assert update.hypervisor.files() == []
    update(**asked)
    assert update.hypervisor.files() == ["web1_data.qcow2"]
    assert definition(update).notes.disk_mib == 108

    asked["disks"][1]["size"] = 24
    grown = update(**asked)
    assert grown["definition"] and "web1_data" in grown["disk"]["updated"][0]
    assert definition(update).notes.disk_mib == 124
    assert update(**asked) == IDLE

    update(disks=[{"name": "system"}], detach=True)
    assert update.hypervisor.files() == ["web1_data.qcow2"]
    with pytest.raises(StorageError, match="web1_data.qcow2 is there already, but VM 'web1' does"):
        image = str(update.hypervisor.root / "image.qcow2")
        update(disks=[{"name": "system"}, {"name": "data", "image": image}], detach=True)
    # Without an image it is its disk again, with what it had.
    asked["disks"][1]["size"] = 32
    assert update(**asked)["definition"] and "web1_data.qcow2" in update.domain.XMLDesc(0)
    assert update(**asked) == IDLE


def test_a_disk_that_was_made_is_removed_if_libvirt_refuses(update):
    update()
    before = definition(update)
    with pytest.raises(LibvirtRefused, match="node 7 not found"):
        update(
            disks=[{"name": "system"}, {"name": "data", "size": 8}],
            detach=True,
            mem={"hugepages": [{"size": "2m", "nodeset": 7}]},
        )

    assert update.hypervisor.files() == []
    assert definition(update) == before


def test_a_drive_is_known_by_its_place_and_gets_another_medium(update, tmp_path):
    iso = str(tmp_path / "b.iso")
    asked = {"disks": [{"name": "system"}, {"name": "x", "device": "cdrom", "source_file": iso}]}

    assert update(**asked) == DEFINED
    drive = next(one for one in definition(update).disks if one.device == "cdrom")
    assert (drive.path, drive.target) == (iso, {"dev": "hda", "bus": "ide"})
    assert update(**asked) == IDLE
    with pytest.raises(StorageError, match="there is no file /srv/none.iso"):
        update(disks=[{"name": "x", "device": "cdrom", "source_file": "/srv/none.iso"}])


def test_a_drive_gets_a_medium_of_the_web(update):
    url = "https://web.example/iso/x.iso?a=1&b=2"
    asked = {"disks": [{"name": "system"}, {"name": "x", "device": "cdrom", "source_file": url}]}

    assert update(**asked) == DEFINED
    drive = next(one for one in definition(update).disks if one.device == "cdrom")
    source = {"protocol": "https", "name": "/iso/x.iso", "query": "a=1&b=2"}
    assert (drive.type, drive.source) == ("network", source)
    assert drive.hosts[0]["name"] == "web.example" and drive.target["dev"] == "hda"
    assert update(**asked) == IDLE
    # What libvirt writes of itself, or another did otherwise, is the same.
    asked["disks"][1]["source_file"] = "https://web.example:443/iso/x.iso?a=1&b=2"
    assert update(**asked) == IDLE
    asked["disks"][1]["source_file"] = "https://web.example:444/iso/x.iso?a=1&b=2"
    assert update(**asked) == DEFINED
    assert update(disks=[{"name": "system"}, {"name": "x", "device": "cdrom"}]) == DEFINED
    drive = next(one for one in definition(update).disks if one.device == "cdrom")
    assert (drive.path, drive.hosts) == (None, ())


@pytest.mark.parametrize(("asked", "why"), BAD, ids=str)
def test_a_bad_argument_changes_nothing(update, monkeypatch, asked, why):
    monkeypatch.setattr(apply.hostfacts, "devices", lambda _conn: [])
    before = definition(update)
    for test in (True, False):
        with pytest.raises(BadArgument, match=why):
            update(**asked, stop_on_reboot=None, test=test)

    assert definition(update) == before


def test_more_memory_than_its_cells_have_is_no_change_once_libvirt_has_cut_it(update):
    cells = {"cpu": {"numa": {0: {"cpus": "0", "memory": 256}, 1: {"cpus": "1", "memory": 256}}}}
    for asked in ({**cells, "mem": 1024}, {"cpu": 4, "mem": 1024}):
        update(**asked)
        assert update(**asked) == IDLE


def test_a_vm_that_is_not_here_or_has_no_definition_is_refused(update):
    with pytest.raises(NoSuchVm):
        update("web9")
    update.conn.createXML(XML.replace("web1", "web2").replace("<boot order='7'/>", ""), 0)
    with pytest.raises(LibvirtRefused, match="has no definition"):
        update("web2")
    lifecycle.destroy(update.conn, "web2")


def test_a_vm_that_moves_is_not_changed(update, monkeypatch):
    def moving(*_args):
        raise startlock.OnItsWay("it moves")

    monkeypatch.setattr(apply.reservations, "refuse_moving", moving)
    before = definition(update)
    for test in (True, False):
        with pytest.raises(VirtError, match="it moves"):
            update(cpu=4, test=test)
    assert definition(update) == before


def test_of_a_running_vm_it_is_said_what_waits(update):
    update()
    update.domain.create()

    assert update(cpu=4, boot_dev="hd network", live=False) == {
        **DEFINED,
        "restart": ["boot_dev", "cpu"],
    }
    # The driver of the tests takes no devices while a domain runs, and says so.
    refused = update(interfaces=[], detach=True)
    assert refused["interface"]["detached"] == [] and refused["restart"] == ["interfaces"]
    assert "not supported" in refused["errors"][0]
    assert len(update(interfaces=[], detach=True, test=True)["interface"]["detached"]) == 1
    assert lifecycle.is_active(update.conn, "web1")


PARTS = [asked for asked, _is_done in CALLS] + [back for _there, back in BACK]
# Two of them may contradict each other, which libvirt refuses then.
PAIRS = [
    {**one, **other} for one, other in itertools.product(PARTS, PARTS) if not set(one) & set(other)
]


@sizes(quick=8, full=300)
def test_whatever_was_called_before_a_second_call_changes_nothing(update, size):
    before = update.domain.XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)

    @settings(
        max_examples=size,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(calls=st.lists(st.sampled_from(PAIRS), min_size=1, max_size=4))
    def settled(calls):
        update.conn.defineXML(before)
        for asked in calls:
            try:
                predicted = update(**asked, test=True)
                done = update(**asked)
            except VirtError:
                continue
            assert done == predicted
            assert update(**asked) == IDLE

    settled()


def test_what_a_running_vm_gets_at_once_is_told_apart_from_what_waits(update, tmp_path):
    update()
    update.domain.create()
    iso = str(tmp_path / "b.iso")
    drive = {"name": "cd", "device": "cdrom", "source_file": iso}

    said = update(disks=[{"name": "data", "size": 8}, drive], detach=True, test=True)["disk"]
    assert ["web1_data.qcow2" in one for one in said["attached"]] == [True]
    assert ["web1_system.qcow2" in one for one in said["detached"]] == [True]
    assert [iso in one for one in said["updated"]] == [True]

    # A drive on IDE cannot go, and how a disk is driven cannot change, while the VM runs.
    for disks in ([{"name": "system"}], [{"name": "system", "io": "threads"}, {**drive}]):
        answer = update(disks=disks, detach=True, test=True)
        assert answer["restart"] == ["disks"] and answer["disk"]["detached"] == []
    moved = {"name": "eth0", "network": "other", "mac": "52:54:00:00:00:01"}
    answer = update(interfaces=[moved, {**moved, "name": "eth1", "mac": None}], test=True)
    assert "other" in answer["interface"]["updated"][0]
    assert len(answer["interface"]["attached"]) == 1 and "restart" not in answer
    assert update(mem=256, cpu=1, test=True) == {**DEFINED, "cpu": True, "mem": True}
    assert update(mem=256, cpu=1) == {**DEFINED, "cpu": True, "mem": True}
