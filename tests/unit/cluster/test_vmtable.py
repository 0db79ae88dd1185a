"""The table of all VMs: sizes, addresses and ages, and the VMs of hosts that do not answer."""

import time

import pytest
from saltvirt.cluster import minionaddresses
from saltvirt.cluster.inventory import lastlisted, lastseen, listing, vmtable
from saltvirt.cluster.rpc import minions
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument
from saltvirt.core.vmfilter import VmFilter
from saltvirt.placement.shownvms import ListedVm
from test_listing import STATES, cloud, hosts, look  # noqa: F401

MIB = 2**20


@pytest.fixture
def rows(hosts, monkeypatch):  # noqa: F811
    """The rows in the answers of hosts, by host and name."""
    rows_by_host = {
        host: {
            name: ListedVm(state=state, cpu=2, mem_mib=512, disk_mib=10240)
            for name, state in vms.items()
        }
        for host, vms in STATES.items()
    }

    def answered(_self, host, **options):
        assert set(options) <= {"name", "state", "tag"}
        return wire.plain(rows_by_host[host])

    original_reply = type(hosts)._reply

    def replied(self, host, fun, arg, kwarg):
        if host in hosts.old and fun == "virt.vm_rows":
            return minions.Reply(minion=host, error="'virt.vm_rows' is not available.")
        return original_reply(self, host, fun, arg, kwarg)

    monkeypatch.setattr(type(hosts), "_vm_rows", answered, raising=False)
    monkeypatch.setattr(type(hosts), "_reply", replied)
    monkeypatch.setattr(minionaddresses, "read_first", lambda _opts, names: {})
    return rows_by_host


def column_by_vm(view, title):
    """Return a column of a view by the VMs' names."""
    column = vmtable.TITLES.index(title)
    return {row[0]: row[column] for row in view["rows"]}


def test_the_answer_is_that_of_3006_and_the_view_has_all_other_columns(rows, cloud, hosts):  # noqa: F811
    now = int(time.time())
    rows["hyper1"]["web1"] = ListedVm(
        state="running",
        cpu=4,
        mem_mib=2048,
        disk_mib=0,
        address="10.0.0.7",
        created=now - 3 * 86400,
    )

    answer, view = vmtable.show(cloud, look(), None)

    assert answer == listing.listed(cloud, look())
    assert [row[0] for row in view["rows"]] == ["db1", "db2", "db3", "web1", "web2", "web3"]
    line = ["web1", "hyper1", "running", 4, 2048 * MIB, 0, "10.0.0.7", "3 d"]
    assert view["rows"][3] == line
    assert view["rows"][4] == ["web2", "hyper1", "shutdown", 2, 512 * MIB, 10240 * MIB, None, None]
    assert hosts.asked.count(("virt.vm_rows", sorted(STATES))) == 1 and view["said"] == []


@pytest.mark.parametrize(
    ("sort", "first"), [("memory", "web3"), ("state", "db2"), ("name", "db1"), ("age", "db1")]
)
def test_a_table_is_sorted_by_what_the_call_names(rows, cloud, sort, first):  # noqa: F811
    rows["hyper2"]["web3"] = ListedVm(state="running", mem_mib=4096, created=5)

    view = vmtable.show(cloud, look(), sort)[1]

    assert view["rows"][0][0] == first


def test_vms_of_a_silent_host_are_shown_as_last_seen(rows, cloud, hosts):  # noqa: F811
    vmtable.show(cloud, look(), None)
    hosts.silent.add("hyper1")

    answer, view = vmtable.show(cloud, look(), None)

    assert answer["unreachable"] == ["hyper1"] and "hyper1" not in {*answer} - {"unreachable"}
    assert column_by_vm(view, "STATE")["web2"] == "was shutdown"
    assert column_by_vm(view, "MEMORY")["web2"] == 512 * MIB
    assert view["said"] == ["hyper1: does not answer (for 0 s); its 3 VMs are shown as last seen"]
    filtered_view = vmtable.show(cloud, look(state="running", name="web*"), None)[1]
    assert column_by_vm(filtered_view, "STATE") == {"web1": "was running", "web3": "running"}


def test_a_vm_that_is_only_known_as_last_seen_is_in_the_table(rows, cloud, hosts):  # noqa: F811
    lastseen.record_move(cloud.opts, "old1", "hyper3")
    hosts.silent.add("hyper3")

    view = vmtable.show(cloud, look(), None)[1]

    assert column_by_vm(view, "STATE")["old1"] == "last seen there"
    assert column_by_vm(view, "MEMORY")["old1"] is None


def test_a_filtered_list_forgets_no_last_seen_vm(rows, cloud, hosts):  # noqa: F811
    vmtable.show(cloud, look(), None)
    vmtable.show(cloud, look(name="web*"), None)

    assert lastseen.find_hosts(cloud.opts, "db1") == ["hyper1"]
    assert set(lastlisted.read(cloud.opts, ["hyper1"])["hyper1"]) == {"db1", "web1", "web2"}


def test_without_a_lease_the_minions_address_is_shown(rows, cloud, monkeypatch):  # noqa: F811
    asked_names = []

    def read(_opts, names):
        asked_names.extend(names)
        return {"web1": "192.0.2.1"}

    monkeypatch.setattr(minionaddresses, "read_first", read)

    view = vmtable.show(cloud, look(host="hyper1"), None)[1]

    assert column_by_vm(view, "ADDRESS") == {"db1": None, "web1": "192.0.2.1 *", "web2": None}
    assert view["said"] == ["* after an address: the VM itself has reported it"]
    assert asked_names == ["db1", "web1"]


def test_a_host_of_an_older_release_shows_the_states_of_its_vms(rows, cloud, hosts):  # noqa: F811
    hosts.old.add("hyper2")

    answer, view = vmtable.show(cloud, look(), None)

    assert answer["hyper2"] == {"running": ["web3"]} and "failed" not in answer
    assert (column_by_vm(view, "STATE")["web3"], column_by_vm(view, "MEMORY")["web3"]) == (
        "running",
        None,
    )


@pytest.mark.parametrize(
    ("answer", "is_refused"),
    [
        ({}, True),
        ({"unreachable": ["h"], "failed": {"i": "down"}}, True),
        ({"h": {"running": ["web1"]}}, False),
        ({"unreachable": ["h"], "last_seen": {"h": ["web1"]}}, False),
    ],
)
def test_a_wrong_first_argument_is_refused(answer, is_refused):
    if not is_refused:
        vmtable.refuse_unknown("web*", VmFilter(name=("web*",)), answer)
        return
    with pytest.raises(BadArgument, match="'web.' matches no hypervisor and no VM"):
        vmtable.refuse_unknown("web*", VmFilter(name=("web*",)), answer)
    for more in ({"state": ("running",)}, {"tag": ("hold",)}):
        vmtable.refuse_unknown("web*", VmFilter(name=("web*",), **more), answer)


def test_the_first_argument_is_a_host_if_it_matches_one(cloud, hosts):  # noqa: F811
    assert not vmtable.is_vm_name(cloud, "hyper*", None)
    assert vmtable.is_vm_name(cloud, "web*", None)
    assert not vmtable.is_vm_name(cloud, "web*", "db1")
