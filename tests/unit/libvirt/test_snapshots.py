"""Snapshots, and the states that take them and revert to them, as Salt 3006.25 returned them."""

import gc
import re
from types import SimpleNamespace

import faces
import libvirt
import pytest
from saltvirt.core.errors import BadArgument, LibvirtRefused, NoSuchVm
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.xml import to_text
from saltvirt.xml.storage import snapshot

VM = """<domain type='test'><name>web1</name><memory>1024</memory>
<os><type arch='i686'>hvm</type></os></domain>"""


@pytest.fixture
def conn():
    """A connection that keeps the test host, which all connections of a process share."""
    # An exception that an earlier test inspected may keep a reference to that test's host.
    gc.collect()
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        yield conn


@pytest.fixture
def virt_snapshot(conn, tmp_path):
    return faces.load("modules", "virt_snapshot", {"state_dir": str(tmp_path)})


@pytest.fixture
def states(conn, tmp_path):
    """The states, and a second VM for them, which is off."""
    lifecycle.define(conn, VM)
    yield faces.load("states", "virt_snapshot", {"state_dir": str(tmp_path)})
    snapshots.delete(conn, "web1", [])
    conn.lookupByName("web1").undefine()


def names(virt_snapshot, vm="test"):
    rows = virt_snapshot.list_snapshots(vm)[vm]
    return [] if rows == "N/A" else [row["name"] for row in rows]


def test_a_vm_without_snapshots_has_the_old_text(virt_snapshot):
    # salt/modules/virt.py 6095 of 3006.25.
    assert virt_snapshot.list_snapshots() == {"test": "N/A"}
    assert virt_snapshot.list_snapshots("test") == {"test": "N/A"}


def test_a_snapshot_is_named_and_listed_as_it_was(virt_snapshot):
    assert virt_snapshot.snapshot("test", "a", suffix="nightly") == {"name": "a-nightly"}
    assert re.fullmatch(r"test-\d{8}-\d{6}", virt_snapshot.snapshot("test")["name"])

    first, second = virt_snapshot.list_snapshots()["test"]
    assert {**first, "created": ""} == {
        "name": "a-nightly",
        "created": "",
        "running": True,
        "current": False,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", first["created"])
    assert second["current"] is True


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"name": "TEST"}, "the VM's own name"),
        ({"name": "a/b"}, "a slash"),
        ({"quiesce": True}, "needs external=True"),
        ({"external": "yes"}, "neither True nor False"),
        ({"suffx": "a"}, "did you mean 'suffix'|no argument 'suffx'"),
    ],
)
def test_a_wrong_option_is_refused_and_no_snapshot_is_taken(virt_snapshot, options, reason):
    with pytest.raises(BadArgument, match=reason):
        virt_snapshot.snapshot("test", **options)

    assert names(virt_snapshot) == []


def test_libvirts_own_message_is_shown(virt_snapshot):
    virt_snapshot.snapshot("test", "a")

    with pytest.raises(LibvirtRefused, match="a"):
        virt_snapshot.snapshot("test", "a")
    # The test driver has no agents.
    with pytest.raises(LibvirtRefused, match="not supported"):
        virt_snapshot.snapshot("test", "b", external=True, quiesce=True)
    with pytest.raises(NoSuchVm):
        virt_snapshot.snapshot("nobody")


def test_a_guest_has_a_minute_to_freeze_and_no_more(monkeypatch):
    calls = []
    vm = SimpleNamespace(
        agentSetResponseTimeout=lambda seconds: calls.append(seconds),
        snapshotCreateXML=lambda _xml, flags: calls.append(flags),
    )
    monkeypatch.setattr(lifecycle, "file_paths", lambda *_: [])
    monkeypatch.setattr(snapshots, "domain", lambda *_: vm)
    monkeypatch.setattr(snapshots, "why_not", lambda *_, **_options: None)

    snapshots.take(None, "web1", "s1", is_external=True, is_quiesced=True)

    assert calls[0] == 60 and calls[1] & libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_QUIESCE


def test_named_snapshots_are_deleted_and_shown_as_they_were(virt_snapshot):
    for name in ("a", "b", "c"):
        virt_snapshot.snapshot("test", name)

    answer = virt_snapshot.delete_snapshots("test", "a", "c")

    # salt/modules/virt.py 6186-6194 of 3006.25.
    assert {key: list(rows) for key, rows in answer.items()} == {
        "available": ["test"],
        "deleted": ["a", "c"],
    }
    assert set(answer["deleted"]["c"]) == {"name", "created", "running", "current"}
    assert names(virt_snapshot) == ["b"]
    assert virt_snapshot.delete_snapshots("test", all=True)["available"] == {"test": "N/A"}


@pytest.mark.parametrize(
    ("snapshot_names", "options"), [((), {}), (("a",), {"all": True}), (("a", "lost"), {})]
)
def test_nothing_is_deleted_unless_snapshots_are_named(virt_snapshot, snapshot_names, options):
    virt_snapshot.snapshot("test", "a")

    with pytest.raises(BadArgument, match="all=True|no snapshot 'lost'; it has: a"):
        virt_snapshot.delete_snapshots("test", *snapshot_names, **options)

    assert names(virt_snapshot) == ["a"]


def test_reverting_goes_to_the_parent_or_to_a_named_snapshot(virt_snapshot):
    for name in ("a", "b", "c"):
        virt_snapshot.snapshot("test", name)

    def reverted(*names, **options):
        answer = virt_snapshot.revert_snapshot("test", *names, **options)
        return answer["reverted"], answer["deleted"]

    assert reverted() == ("b", "N/A")
    virt_snapshot.revert_snapshot("test", "c")
    assert reverted("") == ("b", "N/A")
    assert reverted("b") == ("b", "N/A")
    assert reverted(cleanup=True) == ("a", ["c", "b"])
    assert names(virt_snapshot) == ["a"]


def test_a_parent_is_older_than_its_child_though_the_clock_was_ahead(conn, virt_snapshot):
    vm = conn.lookupByName("test")
    flags = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE
    for name, created, parent in (("a", 2000, ""), ("b", 1000, "a"), ("c", 1001, "b")):
        parent_xml = f"<parent><name>{parent}</name></parent>" if parent else ""
        text = (
            f"<domainsnapshot><name>{name}</name><state>running</state>{parent_xml}"
            f"<creationTime>{created}</creationTime><memory snapshot='internal'/>"
            f"{vm.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)}</domainsnapshot>"
        )
        vm.snapshotCreateXML(text, flags | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_CURRENT)

    answer = virt_snapshot.revert_snapshot("test", "b", cleanup=True)

    assert (answer["deleted"], names(virt_snapshot)) == (["c"], ["a", "b"])


def test_going_back_to_a_running_guest_warns_that_its_minion_is_silent_for_minutes(
    virt_snapshot, states
):
    virt_snapshot.snapshot("test", "a")

    (warning,) = virt_snapshot.revert_snapshot("test", "a")["warnings"]
    assert warning.startswith("'test' goes on with the clock and the connections of its snapshot: ")
    assert "its minion may be silent for some five minutes (" in warning
    assert "virt.guest_exec test '[systemctl, restart, salt-minion]'" in warning

    states.__opts__["test"] = False
    assert states.reverted("test", snapshot="a")["warnings"] == [warning]
    states.__opts__["test"] = True
    assert states.reverted("test", snapshot="a")["warnings"] == [warning]


def test_going_back_to_a_guest_that_was_off_warns_of_nothing(conn, virt_snapshot, states):
    states.__opts__["test"] = False
    virt_snapshot.snapshot("web1", "off")

    assert virt_snapshot.revert_snapshot("web1", "off") == {"reverted": "off", "deleted": "N/A"}
    assert "warnings" not in states.reverted("web1", snapshot="off")


@pytest.mark.parametrize(
    ("state", "place", "has_memory"),
    [
        ("running", "internal", True),
        ("paused", "internal", True),
        ("shutoff", "no", False),
        ("disk-snapshot", "no", False),
        ("running", "external", False),
    ],
)
def test_only_a_revert_of_memory_warns(state, place, has_memory):
    text = (
        f"<domainsnapshot><name>a</name><state>{state}</state><memory snapshot='{place}'/>"
        "<disks><disk name='vda' snapshot='internal'/></disks></domainsnapshot>"
    )
    assert snapshot.read(text).has_memory is has_memory


def test_a_revert_without_such_a_snapshot_is_refused(virt_snapshot):
    with pytest.raises(LibvirtRefused, match="has no snapshots"):
        virt_snapshot.revert_snapshot("test")
    virt_snapshot.snapshot("test", "a")
    with pytest.raises(LibvirtRefused, match="no snapshot before the current one"):
        virt_snapshot.revert_snapshot("test")
    with pytest.raises(BadArgument, match="no snapshot 'lost'; it has: a"):
        virt_snapshot.revert_snapshot("test", "lost")


class Old:
    """A host of QEMU's driver with an external snapshot, which the test driver cannot have."""

    def __init__(self, version):
        self._version = version

    def getLibVersion(self):  # noqa: N802
        return self._version

    def lookupByName(self, _name):  # noqa: N802
        return self

    def listAllSnapshots(self):  # noqa: N802
        return [self]

    def listAllDomains(self, _flags):  # noqa: N802
        return []

    def hasCurrentSnapshot(self):  # noqa: N802
        return 0

    def getXMLDesc(self):  # noqa: N802
        disk = "<disks><disk name='vda' snapshot='external'/></disks>"
        return f"<domainsnapshot><name>a</name><state>disk-snapshot</state>{disk}</domainsnapshot>"


def test_external_snapshots_are_reverted_to_by_a_libvirt_that_can():
    with pytest.raises(LibvirtRefused, match=r"external, and this host's libvirt 9\.0 cannot"):
        snapshots.plan_revert(Old(9000000), "web", "a")

    assert snapshots.plan_revert(Old(9009000), "web", "a").to == "a"
    assert snapshots.list_snapshots(Old(9000000), "web")["web"][0]["external"] is True


def test_the_xml_of_a_new_snapshot_has_its_name():
    assert snapshot.read(to_text(snapshot.build_new("a <b>"))).name == "a <b>"


@pytest.mark.parametrize("state", ["snapshot", "saved"])
def test_a_state_takes_a_snapshot_of_each_vm_that_matches(conn, virt_snapshot, states, state):
    states.__opts__["test"] = True
    prediction = getattr(states, state)("*", suffix="s")
    assert (prediction["result"], names(virt_snapshot)) == (None, [])
    assert prediction["changes"] == {
        "saved": [{"domain": n, "snapshot": True} for n in ("test", "web1")]
    }

    states.__opts__["test"] = False
    applied = getattr(states, state)("*", suffix="s")

    # salt/states/virt.py 137-197 of 3006.25.
    assert applied["result"] is True
    assert [row["domain"] for row in applied["changes"]["saved"]] == ["test", "web1"]
    assert [row["snapshot"] for row in applied["changes"]["saved"][:1]] == names(virt_snapshot)
    assert names(virt_snapshot)[0].endswith("-s")


@pytest.mark.parametrize("state", ["snapshot", "saved", "reverted"])
@pytest.mark.parametrize("is_test", [False, True])
def test_a_pattern_that_matches_nothing_fails(states, state, is_test):
    states.__opts__["test"] = is_test

    answer = getattr(states, state)("db*")

    assert (answer["result"], answer["changes"]) == (False, {})
    assert "no VM's name matches 'db*'" in answer["comment"]


def test_a_state_reverts_one_vm_to_the_snapshot_that_is_named(virt_snapshot, states):
    for name in ("a", "b"):
        virt_snapshot.snapshot("test", name)
    # salt/states/virt.py 1217-1221 of 3006.25.
    changes = {"domain": "test", "current": "a", "deleted": ["b"]}

    states.__opts__["test"] = True
    prediction = states.reverted("test", snapshot="a", cleanup=True)
    assert (prediction["result"], prediction["changes"], names(virt_snapshot)) == (
        None,
        changes,
        ["a", "b"],
    )

    states.__opts__["test"] = False
    applied = states.reverted("test", snapshot="a", cleanup=True)
    assert (applied["result"], applied["changes"]) == (True, changes)
    assert names(virt_snapshot) == ["a"]


@pytest.mark.parametrize("is_test", [False, True])
def test_a_vm_that_cannot_be_reverted_does_not_keep_the_others_from_it(
    virt_snapshot, states, is_test
):
    virt_snapshot.snapshot("test", "a")
    states.__opts__["test"] = is_test

    answer = states.reverted("*", snapshot="a")

    assert answer["result"] is False
    assert answer["changes"]["reverted"] == [{"domain": "test", "current": "a", "deleted": "N/A"}]
    assert [row["domain"] for row in answer["changes"]["ignored"]] == ["web1"]
    assert "web1: " in answer["comment"]


def test_a_connection_is_honoured_and_its_failure_is_the_states(states):
    answer = states.snapshot("*", connection="qemu:///nothing/there")

    assert answer["result"] is False
    assert "qemu:///nothing/there" in answer["comment"]
