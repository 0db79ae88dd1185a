"""virt.defined and virt.running: what they predict, do, and leave alone the second time."""

import importlib.util
from pathlib import Path

import libvirt
import pytest
from saltvirt.core import wire
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import DepartureFacts
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.salt import compat
from saltvirt.libvirt import departedvms, reservations
from saltvirt.libvirt.domains import lifecycle, power, query
from saltvirt.vm.purge.host import purge
from saltvirt.xml import parse

MODULE = Path(__file__).resolve().parents[3] / "_states/virt_defined.py"
VM = {"cpu": 1, "mem": 64, "disks": [{"name": "system", "size": 8}], "seed": False}
SHOUTED_PORT = {"type": "openvswitch", "interfaceid": "09B11C53-8B5C-4EEB-8F00-D84EAA0AAA4F"}
IDLE = {
    "definition": False,
    "disk": {"attached": [], "detached": [], "updated": []},
    "interface": {"attached": [], "detached": []},
}


@pytest.fixture
def states(hypervisor, tmp_path, monkeypatch):
    """The state module on a host; ``states.apply`` checks each state's contract."""
    # There is no master here that could answer whether the VM's name is reserved.
    monkeypatch.setattr(compat, "ask_pillar", lambda *_args, **_kwargs: {})
    spec = importlib.util.spec_from_file_location("virt_defined", MODULE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    options = {
        "connection": {"uri": "test:///default"},
        "images": hypervisor.settings.images,
        "state_dir": hypervisor.settings.state_dir,
        "nic": {"default": []},
        "reserve_mib": 0,
        "disk_reserve_mib": 0,
        "console_log": False,
    }
    module.__opts__ = {
        "virt": options,
        "id": "h1",
        "test": False,
        "cachedir": str(tmp_path / "cache"),
    }
    module.__pillar__ = module.__grains__ = module.__salt__ = {}

    def apply(function, **options):
        module.__opts__["test"] = True
        forecast = getattr(module, function)("web1", **options)
        module.__opts__["test"] = False
        answer = getattr(module, function)("web1", **options)
        assert forecast["result"] is (None if answer["changes"] else answer["result"])
        assert (forecast["changes"], forecast["comment"]) == (answer["changes"], answer["comment"])
        if answer["result"]:
            second_answer = getattr(module, function)("web1", **options)
            assert (second_answer["result"], second_answer["changes"]) == (True, {})
            answer["again"] = second_answer["comment"]
        return answer

    with hypervisor.libvirt() as conn:
        module.apply, module.conn = apply, conn
        yield module


# The changes and comments are those of salt 3006.25, states/virt.py, lines 671 to 726 and 1060
# to 1084.


def test_a_vm_is_defined_updated_and_left(states):
    answer = states.apply("defined", **VM)
    assert answer["changes"] == {"web1": {"definition": True}}
    assert (answer["result"], answer["comment"]) == (True, "Domain web1 defined")
    assert answer["again"] == "Domain web1 unchanged"
    assert query.state(states.conn, "web1") == "shutdown"

    answer = states.apply("defined", **{**VM, "cpu": 2})
    assert answer["changes"] == {"web1": {**IDLE, "definition": True}}
    assert answer["comment"] == "Domain web1 updated"


@pytest.mark.parametrize("function", ["defined", "running"])
def test_a_vm_that_moved_away_is_not_made_a_second_time(states, hypervisor, function):
    departedvms.note_target(hypervisor.settings, "web1", "hyper2")

    answer = states.apply(function, **VM)

    assert (answer["result"], answer["changes"]) == (False, {})
    assert "VM 'web1' moved from here to hyper2 (20" in answer["comment"]
    assert "apply this state there; if no host has it any more" in answer["comment"]
    assert not lifecycle.is_defined(states.conn, "web1")


def test_a_returned_vm_is_updated_and_created_again_after_its_removal(states, hypervisor):
    states.apply("defined", **VM)
    departedvms.note_target(hypervisor.settings, "web1", "hyper2")

    assert states.apply("defined", **{**VM, "cpu": 2})["comment"] == "Domain web1 updated"
    purge.purge(states.conn, hypervisor.settings, "web1")

    assert states.apply("defined", **VM)["comment"] == "Domain web1 defined"


@pytest.mark.parametrize("remove", [purge.undefine, purge.purge])
def test_a_definition_that_was_only_kept_goes_and_its_vm_is_not_made_again(
    states, hypervisor, remove
):
    states.apply("defined", **VM)
    lifecycle.mark_moved(states.conn, "web1", "hyper2")

    remove(states.conn, hypervisor.settings, "web1")

    answer = states.apply("defined", **VM)
    assert "VM 'web1' moved from here to hyper2 (20" in answer["comment"]
    assert not lifecycle.is_defined(states.conn, "web1")


def test_a_state_that_comes_as_a_vm_leaves_does_not_forget_where_it_goes(states, hypervisor):
    states.apply("defined", **VM)
    folder = reservations.folder(hypervisor.settings)
    facts = DepartureFacts(
        uuid=lifecycle.uuid(states.conn, "web1"),
        target="hyper2",
        was_running=False,
        autostart=False,
        leaves=True,
        paths=[],
    )
    with records.hold_record(folder, "departure", "web1") as record:
        record.begin("t1", moveprotocol.LEAVING, **wire.plain(facts))
        departedvms.note_target(hypervisor.settings, "web1", "hyper2")
        assert "has been leaving this host" in states.defined("web1", **VM)["comment"]
        record.end()
    states.conn.lookupByName("web1").undefine()

    assert "moved from here to hyper2" in states.defined("web1", **VM)["comment"]


def test_a_vm_is_created_started_and_started_again(states):
    answer = states.apply("running", **VM)
    assert answer["changes"] == {"web1": {"definition": True, "started": True}}
    assert answer["comment"] == "Domain web1 defined and started"
    assert answer["again"] == "Domain web1 exists and is running"

    lifecycle.destroy(states.conn, "web1")
    assert states.apply("running")["changes"] == {"web1": {"started": True}}
    lifecycle.destroy(states.conn, "web1")
    answer = states.apply("running", **{**VM, "mem": 96})
    assert answer["changes"] == {"web1": {**IDLE, "definition": True, "started": True}}
    assert answer["comment"] == "Domain web1 updated and started"


def test_a_new_vm_has_one_cpu_by_default(states):
    without = {key: value for key, value in VM.items() if key != "cpu"}

    answer = states.apply("defined", **without)

    assert answer["changes"] == {"web1": {"definition": True}}
    assert "<vcpu placement='static'>1</vcpu>" in states.conn.lookupByName("web1").XMLDesc(0)


@pytest.mark.parametrize(
    ("disks", "disk_name"), [([{"name": "root", "size": 8}], "root"), (None, "system")]
)
def test_an_image_becomes_a_disk_that_the_next_run_leaves(states, hypervisor, disks, disk_name):
    image = str(hypervisor.root / "image.qcow2")
    options = {"cpu": 1, "mem": 64, "seed": False, "image": image, "disks": disks}

    states.apply("defined", **options)

    assert [Path(path).name for path in lifecycle.disks(states.conn)["web1"]] == [
        f"web1_{disk_name}.qcow2"
    ]


@pytest.mark.parametrize(
    ("graphics", "expected"),
    [
        ({"type": "vnc", "listen": {"type": "none"}}, {}),
        ({"type": "spice", "port": 5900, "tls_port": 5901, "listen": {"type": "socket"}}, {}),
        ({"type": "vnc", "port": -1, "tls_port": 5901}, {"port": "-1", "autoport": "yes"}),
        ({"type": "spice", "port": "-1", "tls_port": 5901}, {"tlsPort": "5901", "autoport": "no"}),
        ({"type": "rdp", "port": 3389}, {"port": "3389"}),
    ],
)
def test_a_display_is_left_by_the_next_run(states, graphics, expected):
    states.apply("defined", cpu=1, mem=64, seed=False, graphics=graphics)

    element = parse(states.conn.lookupByName("web1").XMLDesc()).find("devices/graphics")
    assert {
        key: value for key, value in element.attrib.items() if key not in ("type", "listen")
    } == expected


def test_an_empty_text_in_a_disk_is_as_if_left_out(states, hypervisor):
    disk = {"name": "system", "size": 8, **dict.fromkeys(("source_file", "image", "pool"), "")}
    drive = {"name": "cd", "device": "cdrom", "source_file": ""}

    answer = states.apply("defined", **{**VM, "disks": [disk, drive]})

    assert answer["comment"] == "Domain web1 defined"
    assert hypervisor.files() == ["web1_system.qcow2"]


@pytest.mark.parametrize(
    "nic",
    [
        {"type": "network", "source": "default", "virtualport": "openvswitch"},
        {"type": "ethernet", "source": "tap7"},
        {"type": "network", "source": "default", "virtualport": SHOUTED_PORT},
    ],
)
def test_a_nic_that_libvirt_stores_differently_is_left_by_the_next_run(states, nic):
    options = {**VM, "interfaces": [{"name": "eth0", **nic}]}
    states.defined("web1", **options)
    first_xml = states.conn.lookupByName("web1").XMLDesc()

    assert states.apply("defined", **options)["comment"] == "Domain web1 unchanged"
    assert states.conn.lookupByName("web1").XMLDesc() == first_xml


def test_a_file_named_with_two_slashes_is_recognized(states, hypervisor):
    (hypervisor.root / "data.raw").write_bytes(bytes(8 * 2**20))
    file = f"{hypervisor.root}//data.raw"
    disk = {"name": "data", "source_file": file, "format": "raw", "model": "ide"}
    states.apply("defined", **{**VM, "disks": [disk]})

    # Salt 3006 wrote the path in this way.
    states.conn.defineXML(
        states.conn.lookupByName("web1").XMLDesc().replace("/data.raw", "//data.raw")
    )
    states.apply("defined", **{**VM, "disks": [disk]})
    assert lifecycle.file_paths(states.conn, "web1") == [file]


@pytest.mark.parametrize("folder_spelling", ["{}/fast/", "{}//fast", "{}/fast"])
def test_a_disk_is_recognized_by_each_spelling_of_its_folder(states, hypervisor, folder_spelling):
    (hypervisor.root / "fast").mkdir()
    disk = {"name": "system", "size": 8, "pool": folder_spelling.format(hypervisor.root)}

    answer = states.apply("defined", **{**VM, "disks": [disk]})

    assert (answer["result"], answer["again"]) == (True, "Domain web1 unchanged")


def test_a_disk_that_only_the_running_vm_has_can_be_listed_again(states):
    disks = [{"name": name, "size": 8} for name in ("system", "data")]
    states.running("web1", **{**VM, "disks": disks})
    # The guest does not release the disk.
    first_answer = states.defined(
        "web1", **{**VM, "disks": disks[:1], "live": False, "detach": True}
    )
    assert first_answer["changes"]["web1"]["restart"] == ["disks"]

    answer = states.apply("running", **{**VM, "disks": disks})

    assert (answer["result"], answer["comment"]) == (True, "Domain web1 updated")
    definition = parse(states.conn.lookupByName("web1").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    assert [target.get("dev") for target in definition.iterfind("devices/disk/target")] == [
        "vda",
        "vdb",
    ]
    assert definition.find("devices/disk[2]/driver").get("type") == "qcow2"


def test_a_paused_vm_is_resumed(states):
    states.apply("running", **VM)
    power.act(states.conn, "web1", "suspend")

    assert states.apply("running", **VM)["changes"] == {"web1": {"started": True}}
    assert query.state(states.conn, "web1") == "running"


def test_a_crashed_vm_does_not_count_as_running(states, monkeypatch):
    states.apply("running", **VM)
    monkeypatch.setattr(libvirt.virDomain, "state", lambda *_: [libvirt.VIR_DOMAIN_CRASHED, 0])

    answer = states.apply("running", **VM)

    assert (answer["result"], answer["changes"]) == (False, {})
    assert "VM 'web1' has crashed" in answer["comment"]


def test_autostart_is_set_on_creation_and_left_alone_afterwards(states):
    answer = states.apply("defined", **VM, autostart=True)
    assert answer["changes"] == {"web1": {"definition": True, "autostart": True}}
    assert lifecycle.list_autostarted_domains(states.conn) == {"web1"}

    assert states.apply("defined", **VM)["changes"] == {}
    assert lifecycle.list_autostarted_domains(states.conn) == {"web1"}
    answer = states.apply("defined", **VM, autostart=False)
    assert answer["changes"] == {"web1": {**IDLE, "autostart": False}}
    assert lifecycle.list_autostarted_domains(states.conn) == set()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cpu": 1}, "give mem"),
        ({**VM, "cpu": "x"}, "cpu"),
        ({**VM, "imgae": "salt://a"}, "did you mean 'image'"),
        ({**VM, "vm_type": "xen"}, "one of kvm, qemu"),
        ({**VM, "graphics": {"type": "VNC"}}, "graphics:type: 'VNC'; one of vnc, spice, "),
        ({**VM, "autostart": "yes"}, "autostart: 'yes' is neither True nor False"),
        ({**VM, "os_type": "linux"}, "os_type: 'linux'; leave it out, or hvm"),
        ({**VM, "connection": "qemu:///none"}, "libvirt does not answer at qemu:///none"),
    ],
)
def test_wrong_options_fail_with_their_reason_and_leave_nothing(states, options, reason):
    answer = states.apply("running", **options)

    assert (answer["result"], answer["changes"]) == (False, {})
    assert reason in answer["comment"]
    assert not lifecycle.is_defined(states.conn, "web1")


def test_options_that_an_update_refuses_are_refused_for_a_new_vm_too(states):
    answer = states.apply("defined", **VM, live="maybe")

    assert (answer["result"], answer["changes"]) == (False, {})
    assert answer["comment"] == "live: 'maybe' is neither True nor False"
    assert not lifecycle.is_defined(states.conn, "web1")


def test_a_change_that_libvirt_refuses_at_once_fails_with_its_error(states):
    states.apply("running", **VM)

    answer = states.running("web1", **{**VM, "disks": [], "detach": True})

    assert answer["result"] is False
    assert "not supported" in answer["comment"]
    assert answer["changes"]["web1"]["definition"] is True


@pytest.mark.parametrize("function", ["defined", "running"])
def test_a_state_that_lists_fewer_disks_fails_and_detaches_none(states, function):
    disks = [{"name": name, "size": 8} for name in ("system", "data")]
    states.apply(function, **{**VM, "disks": disks})
    xml_before = states.conn.lookupByName("web1").XMLDesc(0)

    # The run with test=True foresees this, too.
    answer = states.apply(function, **VM)

    assert (answer["result"], answer["changes"]) == (False, {})
    assert "disks: VM 'web1' would lose disk vdb (" in answer["comment"]
    assert answer["comment"].endswith("or give detach=True")
    assert states.conn.lookupByName("web1").XMLDesc(0) == xml_before
    # A state that lists all disks is not affected, and neither is one without ``disks``.
    assert states.apply(function, **{**VM, "disks": disks})["changes"] == {}
    assert states.apply(function, **{**VM, "disks": None})["changes"] == {}


def test_a_state_detaches_with_detach(states):
    disks = [{"name": name, "size": 8} for name in ("system", "data")]
    states.apply("defined", **{**VM, "disks": disks})

    answer = states.apply("defined", **VM, detach=True)

    assert answer["changes"] == {"web1": {**IDLE, "definition": True}}
    root = parse(states.conn.lookupByName("web1").XMLDesc(0))
    assert [target.get("dev") for target in root.iterfind("devices/disk/target")] == ["vda"]


def test_a_new_vm_may_have_detach(states):
    assert states.apply("defined", **VM, detach=True)["result"] is True


@pytest.mark.parametrize(
    ("nic", "reason"),
    [
        ({"type": "network", "source": "lan"}, "no active network lan there"),
        ({"type": "bridge", "source": "br77"}, "no bridge br77 there"),
    ],
)
def test_a_vm_is_defined_though_it_cannot_start_yet(states, nic, reason):
    options = {**VM, "interfaces": [{"name": "eth0", **nic}]}

    answer = states.apply("defined", **options)

    assert answer["changes"] == {"web1": {"definition": True}}
    expected = f"it is defined, and cannot start yet: {reason}"
    assert any(warning.startswith(expected) for warning in answer["warnings"])
    # A VM that is to run is refused before anything is created.
    refused = states.running("web2", **{**options, "disks": []})
    assert refused["result"] is False and reason in refused["comment"]
    assert not lifecycle.is_defined(states.conn, "web2")
