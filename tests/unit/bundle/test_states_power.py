"""The states that turn VMs off, in the shapes that Salt 3006.25 returned."""

import faces
import libvirt
import pytest
from saltvirt.core.errors import LibvirtRefused
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, power, query

VM = """<domain type='test'><name>web1</name><memory>1024</memory>
<os><type arch='i686'>hvm</type></os></domain>"""
# The state, the key of its changes, its function: salt/states/virt.py 200-265, 1106-1151.
STATES = [
    ("stopped", "stopped", "shutdown"),
    ("powered_off", "unpowered", "stop"),
    ("unpowered", "unpowered", "stop"),
    ("rebooted", "rebooted", "reboot"),
]


@pytest.fixture
def conn():
    """The test host, with a second VM that is shut off."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        lifecycle.define(conn, VM)
        yield conn
        lifecycle.destroy(conn, "web1")
        conn.lookupByName("web1").undefine()


@pytest.fixture
def states(conn):
    return faces.load("states", "virt_power")


@pytest.mark.parametrize(("state", "section", "function"), STATES)
def test_a_running_vm_is_acted_on_as_the_dry_run_foresaw(conn, states, state, section, function):
    changes = {section: [{"domain": "test", function: True}]}

    states.__opts__["test"] = True
    forecast = getattr(states, state)("test")
    assert (forecast["result"], forecast["changes"]) == (None, changes)
    assert lifecycle.is_active(conn, "test")

    states.__opts__["test"] = False
    answer = getattr(states, state)("test")
    assert (answer["name"], answer["result"], answer["changes"]) == ("test", True, changes)
    assert answer["comment"] == forecast["comment"]


@pytest.mark.parametrize(("state", "section", "function"), STATES[:3])
@pytest.mark.parametrize("is_test", [False, True])
def test_a_second_run_changes_nothing(conn, states, state, section, function, is_test):
    lifecycle.destroy(conn, "test")
    states.__opts__["test"] = is_test

    assert getattr(states, state)("*") == {
        "name": "*",
        "changes": {},
        "result": True,
        "comment": "No changes had happened",
    }


@pytest.mark.parametrize("is_test", [False, True])
def test_a_vm_that_is_off_cannot_reboot_and_the_others_do(states, is_test):
    states.__opts__["test"] = is_test

    answer = states.rebooted("*")

    assert answer["result"] is False
    assert answer["changes"]["rebooted"] == [{"domain": "test", "reboot": True}]
    (ignored_vm,) = answer["changes"]["ignored"]
    assert ignored_vm["domain"] == "web1"
    assert "is not running" in ignored_vm["issue"]
    assert ignored_vm["issue"] in answer["comment"]


@pytest.mark.parametrize("state", [row[0] for row in STATES])
def test_a_pattern_that_matches_nothing_and_a_lost_keyword_fail(states, state):
    assert getattr(states, state)("db*")["result"] is False
    answer = getattr(states, state)("test", conection="x")
    assert (answer["result"], answer["changes"]) == (False, {})
    assert "conection" in answer["comment"]


def test_the_keys_have_another_name():
    calls = []
    opts = {"virt.keys": lambda **kwargs: calls.append(kwargs) or {"result": True}}
    state = faces.load("states", "libvirt_keys", states=opts)

    assert state.__virtual__() == "libvirt"
    assert state.keys_("keys", basepath="/tmp/pki") == {"result": True}
    assert calls == [{"name": "keys", "basepath": "/tmp/pki"}]


@pytest.mark.parametrize("flag", ["vnc", "renew"])
def test_a_flag_of_the_keys_is_a_boolean(tmp_path, flag):
    state = faces.load("states", "virt")

    answer = state.keys_("keys", basepath=str(tmp_path), **{flag: "no"})

    assert (answer["result"], answer["changes"]) == (False, {})
    assert answer["comment"] == f"{flag}: 'no' is neither True nor False"


@pytest.mark.parametrize("basepath", [5, None, ["/etc/pki"], "etc/pki", ""])
def test_keys_go_nowhere_but_below_an_absolute_path(basepath):
    state = faces.load("states", "virt")
    state.__opts__["id"] = "hyper1"

    answer = state.keys_("keys", basepath=basepath)

    assert (answer["result"], answer["changes"]) == (False, {})
    assert answer["comment"].startswith("basepath: ")


def test_a_guest_that_sleeps_is_shown_as_paused_and_resuming_wakes_it(conn, monkeypatch):
    woken_domains = []

    def refuse(_self):
        raise libvirt.libvirtError("Requested operation is not valid: domain is pmsuspended")

    state = [libvirt.VIR_DOMAIN_PMSUSPENDED, 0]
    monkeypatch.setattr(libvirt.virDomain, "state", lambda *_: state)
    monkeypatch.setattr(libvirt.virDomain, "resume", refuse)
    monkeypatch.setattr(libvirt.virDomain, "pMWakeup", lambda dom: woken_domains.append(dom.name()))
    assert query.state(conn, "test") == "paused"

    power.act(conn, "test", "resume")

    assert woken_domains == ["test"]


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (libvirt.VIR_DOMAIN_PAUSED, "VM 'test' is paused; let it go on with virt.resume test"),
        (libvirt.VIR_DOMAIN_PMSUSPENDED, "VM 'test' is paused, .*; wake it with virt.resume test"),
        (libvirt.VIR_DOMAIN_CRASHED, "VM 'test' has crashed, .*; end it with virt.stop test"),
    ],
)
def test_starting_a_paused_or_crashed_vm_is_refused(conn, monkeypatch, tmp_path, number, reason):
    virt = faces.load("modules", "virt", {"state_dir": str(tmp_path)})
    assert virt.start("test") is True
    monkeypatch.setattr(libvirt.virDomain, "state", lambda *_: [number, 0])

    with pytest.raises(LibvirtRefused, match=reason):
        virt.start("test")


@pytest.mark.parametrize("is_test", [False, True])
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (
            libvirt.VIR_DOMAIN_PAUSED,
            "VM 'test' is paused, so its guest cannot shut down; let it go on with virt.resume "
            "test first, or stop it at once with virt.stop test",
        ),
        (
            libvirt.VIR_DOMAIN_PMSUSPENDED,
            "VM 'test' is paused, as its guest sleeps; wake it with virt.resume test, or stop it "
            "at once with virt.stop test",
        ),
        (
            libvirt.VIR_DOMAIN_CRASHED,
            "VM 'test' has crashed, and is kept as it was then; end it with virt.stop test, then "
            "start it",
        ),
    ],
)
def test_a_stopped_state_names_the_remedy_for_a_paused_or_crashed_vm(
    states, monkeypatch, number, reason, is_test
):
    states.__opts__["test"] = is_test
    # The test driver's guests neither sleep nor crash.
    monkeypatch.setattr(libvirt.virDomain, "state", lambda *_: [number, 0])

    answer = states.stopped("test")

    assert answer["result"] is False
    assert answer["changes"] == {"ignored": [{"domain": "test", "issue": reason}]}


def test_a_paused_vm_can_be_resumed_and_powered_off(conn):
    for action in ("suspend", "resume", "suspend", "destroy"):
        power.act(conn, "test", action)

    assert query.state(conn, "test") == "shutdown"


VERBS = ("stop", "shutdown", "reboot", "reset", "pause", "resume", "ctrl_alt_del")


@pytest.mark.parametrize("verb", VERBS)
def test_states_of_users_catch_libvirts_error_for_a_vm_that_is_off(conn, verb):
    virt = faces.load("modules", "virt")

    with pytest.raises(libvirt.libvirtError, match="VM 'web1' is not running") as caught:
        getattr(virt, verb)("web1")

    assert isinstance(caught.value, LibvirtRefused)
    assert caught.value.get_error_code() == libvirt.VIR_ERR_OPERATION_INVALID
    assert str(caught.value) == caught.value.get_error_message()
    assert caught.value.to_dict()["kind"] == "LibvirtRefused"
