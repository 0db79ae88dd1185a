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
    """The state module on a host; ``states.apply`` holds each state to its contract."""
    # Nobody is the master here, which would say whether the VM's name is reserved.
    monkeypatch.setattr(compat, "ask_pillar", lambda *_args, **_given: {})
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

    def apply(function, **given):
        module.__opts__["test"] = True
        said = getattr(module, function)("web1", **given)
        module.__opts__["test"] = False
        done = getattr(module, function)("web1", **given)
        assert said["result"] is (None if done["changes"] else done["result"])
        assert (said["changes"], said["comment"]) == (done["changes"], done["comment"])
        if done["result"]:
            again = getattr(module, function)("web1", **given)
            assert (again["result"], again["changes"]) == (True, {})
            done["again"] = again["comment"]
        return done

    with hypervisor.libvirt() as conn:
        module.apply, module.conn = apply, conn
        yield module


# The changes and comments are those of salt 3006.25, states/virt.py, lines 671 to 726 and 1060
# to 1084.


def test_a_vm_is_defined_updated_and_left(states):
    done = states.apply("defined", **VM)
    assert done["changes"] == {"web1": {"definition": True}}
    assert (done["result"], done["comment"]) == (True, "Domain web1 defined")
    assert done["again"] == "Domain web1 unchanged"
    assert query.state(states.conn, "web1") == "shutdown"

    done = states.apply("defined", **{**VM, "cpu": 2})
    assert done["changes"] == {"web1": {**IDLE, "definition": True}}
    assert done["comment"] == "Domain web1 updated"


@pytest.mark.parametrize("function", ["defined", "running"])
def test_a_vm_that_moved_away_is_not_made_a_second_time(states, hypervisor, function):
    departedvms.note_target(hypervisor.settings, "web1", "hyper2")

    done = states.apply(function, **VM)

    assert (done["result"], done["changes"]) == (False, {})
    assert "VM 'web1' moved from here to hyper2 (20" in done["comment"]
    assert "apply this state there; if no host has it any more" in done["comment"]
    assert not lifecycle.is_defined(states.conn, "web1")


def test_a_vm_that_is_here_again_is_updated_and_made_anew_when_it_is_gone(states, hypervisor):
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

    done = states.apply("defined", **VM)
    assert "VM 'web1' moved from here to hyper2 (20" in done["comment"]
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
    with records.hold_record(folder, "departure", "web1") as held:
        held.begin("t1", moveprotocol.LEAVING, **wire.plain(facts))
        departedvms.note_target(hypervisor.settings, "web1", "hyper2")
        assert "has been leaving this host" in states.defined("web1", **VM)["comment"]
        held.end()
    states.conn.lookupByName("web1").undefine()

    assert "moved from here to hyper2" in states.defined("web1", **VM)["comment"]


def test_a_vm_is_created_started_and_started_again(states):
    done = states.apply("running", **VM)
    assert done["changes"] == {"web1": {"definition": True, "started": True}}
    assert done["comment"] == "Domain web1 defined and started"
    assert done["again"] == "Domain web1 exists and is running"

    lifecycle.destroy(states.conn, "web1")
    assert states.apply("running")["changes"] == {"web1": {"started": True}}
    lifecycle.destroy(states.conn, "web1")
    done = states.apply("running", **{**VM, "mem": 96})
    assert done["changes"] == {"web1": {**IDLE, "definition": True, "started": True}}
    assert done["comment"] == "Domain web1 updated and started"


def test_a_new_vm_of_which_nobody_says_so_has_one_cpu(states):
    without = {key: one for key, one in VM.items() if key != "cpu"}

    done = states.apply("defined", **without)

    assert done["changes"] == {"web1": {"definition": True}}
    assert "<vcpu placement='static'>1</vcpu>" in states.conn.lookupByName("web1").XMLDesc(0)


@pytest.mark.parametrize(
    ("disks", "made"), [([{"name": "root", "size": 8}], "root"), (None, "system")]
)
def test_an_image_becomes_a_disk_that_the_next_run_leaves(states, hypervisor, disks, made):
    image = str(hypervisor.root / "image.qcow2")
    given = {"cpu": 1, "mem": 64, "seed": False, "image": image, "disks": disks}

    states.apply("defined", **given)

    assert [Path(one).name for one in lifecycle.disks(states.conn)["web1"]] == [
        f"web1_{made}.qcow2"
    ]


@pytest.mark.parametrize(
    ("graphics", "said"),
    [
        ({"type": "vnc", "listen": {"type": "none"}}, {}),
        ({"type": "spice", "port": 5900, "tls_port": 5901, "listen": {"type": "socket"}}, {}),
        ({"type": "vnc", "port": -1, "tls_port": 5901}, {"port": "-1", "autoport": "yes"}),
        ({"type": "spice", "port": "-1", "tls_port": 5901}, {"tlsPort": "5901", "autoport": "no"}),
        ({"type": "rdp", "port": 3389}, {"port": "3389"}),
    ],
)
def test_a_display_is_left_by_the_next_run(states, graphics, said):
    states.apply("defined", cpu=1, mem=64, seed=False, graphics=graphics)

    made = parse(states.conn.lookupByName("web1").XMLDesc()).find("devices/graphics")
    assert {key: one for key, one in made.attrib.items() if key not in ("type", "listen")} == said


def test_an_empty_text_of_a_disk_says_nothing(states, hypervisor):
    disk = {"name": "system", "size": 8, **dict.fromkeys(("source_file", "image", "pool"), "")}
    drive = {"name": "cd", "device": "cdrom", "source_file": ""}

    done = states.apply("defined", **{**VM, "disks": [disk, drive]})

    assert done["comment"] == "Domain web1 defined"
    assert hypervisor.files() == ["web1_system.qcow2"]


@pytest.mark.parametrize(
    "nic",
    [
        {"type": "network", "source": "default", "virtualport": "openvswitch"},
        {"type": "ethernet", "source": "tap7"},
        {"type": "network", "source": "default", "virtualport": SHOUTED_PORT},
    ],
)
def test_a_nic_of_which_libvirt_keeps_more_or_less_is_left_by_the_next_run(states, nic):
    given = {**VM, "interfaces": [{"name": "eth0", **nic}]}
    states.defined("web1", **given)
    made = states.conn.lookupByName("web1").XMLDesc()

    assert states.apply("defined", **given)["comment"] == "Domain web1 unchanged"
    assert states.conn.lookupByName("web1").XMLDesc() == made


def test_a_file_that_is_named_with_two_slashes_is_known_again(states, hypervisor):
    (hypervisor.root / "data.raw").write_bytes(bytes(8 * 2**20))
    file = f"{hypervisor.root}//data.raw"
    disk = {"name": "data", "source_file": file, "format": "raw", "model": "ide"}
    states.apply("defined", **{**VM, "disks": [disk]})

    # As Salt 3006 wrote it.
    states.conn.defineXML(
        states.conn.lookupByName("web1").XMLDesc().replace("/data.raw", "//data.raw")
    )
    states.apply("defined", **{**VM, "disks": [disk]})
    assert lifecycle.file_paths(states.conn, "web1") == [file]


@pytest.mark.parametrize("written", ["{}/fast/", "{}//fast", "{}/fast"])
def test_a_disk_is_known_again_however_its_folder_is_written(states, hypervisor, written):
    (hypervisor.root / "fast").mkdir()
    disk = {"name": "system", "size": 8, "pool": written.format(hypervisor.root)}

    done = states.apply("defined", **{**VM, "disks": [disk]})

    assert (done["result"], done["again"]) == (True, "Domain web1 unchanged")


def test_a_disk_that_only_the_running_vm_has_can_be_listed_again(states):
    both = [{"name": name, "size": 8} for name in ("system", "data")]
    states.running("web1", **{**VM, "disks": both})
    # As a guest that does not let go of it.
    alone = states.defined("web1", **{**VM, "disks": both[:1], "live": False, "detach": True})
    assert alone["changes"]["web1"]["restart"] == ["disks"]

    done = states.apply("running", **{**VM, "disks": both})

    assert (done["result"], done["comment"]) == (True, "Domain web1 updated")
    kept = parse(states.conn.lookupByName("web1").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    assert [one.get("dev") for one in kept.iterfind("devices/disk/target")] == ["vda", "vdb"]
    assert kept.find("devices/disk[2]/driver").get("type") == "qcow2"


def test_a_paused_vm_is_resumed(states):
    states.apply("running", **VM)
    power.act(states.conn, "web1", "suspend")

    assert states.apply("running", **VM)["changes"] == {"web1": {"started": True}}
    assert query.state(states.conn, "web1") == "running"


def test_a_vm_that_has_crashed_is_not_said_to_run(states, monkeypatch):
    states.apply("running", **VM)
    monkeypatch.setattr(libvirt.virDomain, "state", lambda *_: [libvirt.VIR_DOMAIN_CRASHED, 0])

    done = states.apply("running", **VM)

    assert (done["result"], done["changes"]) == (False, {})
    assert "VM 'web1' has crashed" in done["comment"]


def test_autostart_is_set_on_creation_and_left_alone_afterwards(states):
    done = states.apply("defined", **VM, autostart=True)
    assert done["changes"] == {"web1": {"definition": True, "autostart": True}}
    assert lifecycle.list_autostarted_domains(states.conn) == {"web1"}

    assert states.apply("defined", **VM)["changes"] == {}
    assert lifecycle.list_autostarted_domains(states.conn) == {"web1"}
    done = states.apply("defined", **VM, autostart=False)
    assert done["changes"] == {"web1": {**IDLE, "autostart": False}}
    assert lifecycle.list_autostarted_domains(states.conn) == set()


@pytest.mark.parametrize(
    ("given", "why"),
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
def test_what_cannot_be_done_is_said_and_nothing_is_left(states, given, why):
    done = states.apply("running", **given)

    assert (done["result"], done["changes"]) == (False, {})
    assert why in done["comment"]
    assert not lifecycle.is_defined(states.conn, "web1")


def test_what_the_next_run_would_refuse_is_refused_of_a_new_vm_too(states):
    done = states.apply("defined", **VM, live="maybe")

    assert (done["result"], done["changes"]) == (False, {})
    assert done["comment"] == "live: 'maybe' is neither True nor False"
    assert not lifecycle.is_defined(states.conn, "web1")


def test_what_libvirt_refuses_at_once_is_a_failure_with_its_words(states):
    states.apply("running", **VM)

    done = states.running("web1", **{**VM, "disks": [], "detach": True})

    assert done["result"] is False
    assert "not supported" in done["comment"]
    assert done["changes"]["web1"]["definition"] is True


@pytest.mark.parametrize("function", ["defined", "running"])
def test_a_state_that_lists_fewer_disks_fails_and_detaches_none(states, function):
    both = [{"name": name, "size": 8} for name in ("system", "data")]
    states.apply(function, **{**VM, "disks": both})
    before = states.conn.lookupByName("web1").XMLDesc(0)

    # Also foreseen with test=True.
    done = states.apply(function, **VM)

    assert (done["result"], done["changes"]) == (False, {})
    assert "disks: VM 'web1' would lose disk vdb (" in done["comment"]
    assert done["comment"].endswith("or give detach=True")
    assert states.conn.lookupByName("web1").XMLDesc(0) == before
    # One that lists all is not affected, and neither is one that says nothing of disks.
    assert states.apply(function, **{**VM, "disks": both})["changes"] == {}
    assert states.apply(function, **{**VM, "disks": None})["changes"] == {}


def test_a_state_detaches_where_it_says_so(states):
    both = [{"name": name, "size": 8} for name in ("system", "data")]
    states.apply("defined", **{**VM, "disks": both})

    done = states.apply("defined", **VM, detach=True)

    assert done["changes"] == {"web1": {**IDLE, "definition": True}}
    kept = parse(states.conn.lookupByName("web1").XMLDesc(0))
    assert [one.get("dev") for one in kept.iterfind("devices/disk/target")] == ["vda"]


def test_a_new_vm_may_be_told_to_detach(states):
    assert states.apply("defined", **VM, detach=True)["result"] is True


@pytest.mark.parametrize(
    ("nic", "reason"),
    [
        ({"type": "network", "source": "lan"}, "no active network lan there"),
        ({"type": "bridge", "source": "br77"}, "no bridge br77 there"),
    ],
)
def test_a_vm_is_defined_though_it_cannot_start_yet(states, nic, reason):
    given = {**VM, "interfaces": [{"name": "eth0", **nic}]}

    done = states.apply("defined", **given)

    assert done["changes"] == {"web1": {"definition": True}}
    expected = f"it is defined, and cannot start yet: {reason}"
    assert any(warning.startswith(expected) for warning in done["warnings"])
    # One that is to run is refused before anything is made.
    refused = states.running("web2", **{**given, "disks": []})
    assert refused["result"] is False and reason in refused["comment"]
    assert not lifecycle.is_defined(states.conn, "web2")
