"""Which hosts each purpose of locating a VM asks and accepts, for each presence of the VM."""

import pytest
from saltvirt.cluster.inventory import inventory, lastseen, whereabouts
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import NameTaken, NoSuchVm
from saltvirt.migration.master import migrate

RUNNING, STOPPED = VmPresence(state="running"), VmPresence(state="shutdown")
NONE = VmPresence()
SILENT = {"c": "does not answer"}
NAMED = {Purpose.MOVE: "a", Purpose.AUTHORIZE: "a"}


def vm(presence_by_host, suspects=None, **fields):
    suspects = suspects or {}
    return Whereabouts(
        name="web", presence_by_host=presence_by_host, suspects=suspects, unasked=suspects, **fields
    )


# By purpose: the VM runs on host a; it is shut off there; it runs on a and b has it, too; it
# is shut off on both; no host has it; host b alone has it.
SEEN = [
    {"a": RUNNING, "b": NONE},
    {"a": STOPPED, "b": NONE},
    {"a": RUNNING, "b": STOPPED},
    {"a": STOPPED, "b": STOPPED},
    {"a": NONE, "b": NONE},
    {"a": NONE, "b": RUNNING},
]
OUTCOMES = {
    Purpose.READ: ["a", "a", NameTaken, NameTaken, NoSuchVm, "b"],
    Purpose.ACT: ["a", "a", NameTaken, NameTaken, NoSuchVm, "b"],
    Purpose.MOVE: ["a", "a", "a", NameTaken, "a", "a"],
    Purpose.REMOVE: ["a", "a", NameTaken, NameTaken, NoSuchVm, "b"],
    Purpose.CREATE: [NameTaken, NameTaken, NameTaken, NameTaken, "", NameTaken],
    Purpose.AUTHORIZE: ["a", "a", NameTaken, NameTaken, "a", NameTaken],
    Purpose.REPORT: [""] * 6,
}
# The same while host c, on which the VM was last seen, is unresponsive.
IN_DOUBT = {
    Purpose.READ: ["a", NameTaken, NameTaken, NameTaken, NoSuchVm, "b"],
    Purpose.ACT: ["a", NameTaken, NameTaken, NameTaken, NoSuchVm, "b"],
    Purpose.MOVE: ["a", NameTaken, "a", NameTaken, "a", "a"],
    Purpose.REMOVE: [NameTaken, NameTaken, NameTaken, NameTaken, NoSuchVm, NameTaken],
    Purpose.CREATE: [NameTaken] * 6,
    Purpose.AUTHORIZE: [NameTaken] * 6,
    Purpose.REPORT: [""] * 6,
}


def outcome(vm_, purpose):
    try:
        return whereabouts.decide(vm_, purpose, NAMED.get(purpose, ""))
    except (NameTaken, NoSuchVm) as error:
        return type(error)


@pytest.mark.parametrize("purpose", Purpose)
def test_which_answers_a_purpose_accepts(purpose):
    assert [outcome(vm(presence_by_host), purpose) for presence_by_host in SEEN] == OUTCOMES[
        purpose
    ]
    assert [
        outcome(vm(presence_by_host, SILENT), purpose) for presence_by_host in SEEN
    ] == IN_DOUBT[purpose]


@pytest.mark.parametrize("purpose", Purpose)
def test_whether_a_host_that_only_an_order_names_may_have_the_vm(purpose):
    ordered = vm({"a": NONE}, ordered=SILENT)
    is_refused = {Purpose.CREATE: NameTaken}.get(purpose, outcome(vm({"a": NONE}), purpose))

    assert outcome(ordered, purpose) == is_refused
    counted_hosts = ordered.out_of_reach(whereabouts.RULES[purpose])
    assert counted_hosts == (SILENT if purpose in (Purpose.CREATE, Purpose.REPORT) else {})


@pytest.mark.parametrize("purpose", Purpose)
def test_whether_the_other_host_of_a_recorded_move_may_have_the_vm(purpose):
    moving = vm({"a": STOPPED}, SILENT, move_hosts=("a", "c"))

    counted_hosts = moving.out_of_reach(whereabouts.RULES[purpose])
    assert counted_hosts == (SILENT if purpose in (Purpose.CREATE, Purpose.REPORT) else {})


@pytest.mark.parametrize(
    ("purpose", "option"), [(Purpose.CREATE, "force"), (Purpose.AUTHORIZE, "replace")]
)
def test_the_option_that_overrides_a_doubt_is_named(purpose, option):
    with pytest.raises(NameTaken, match=rf"may be on c \(does not answer\).*give {option}=True"):
        whereabouts.decide(vm({"a": NONE}, SILENT), purpose, NAMED.get(purpose, ""))


@pytest.mark.parametrize(
    ("vm_presence", "message"),
    [
        (STOPPED, "is on a already (shutdown); .*virt.purge web (it was settled)"),
        (VmPresence(building=True), "is being built on a"),
        (VmPresence(unreadable="half a record"), "what a has of VM 'web' is not known: half a"),
    ],
)
def test_the_reason_why_a_name_is_taken_is_named(vm_presence, message):
    pattern = message.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(NameTaken, match=pattern):
        whereabouts.decide(vm({"a": vm_presence}), Purpose.CREATE, outcome_text="it was settled")


# The hosts that are asked.


@pytest.fixture
def questions(cloud, monkeypatch):
    """``[(function, hosts)]`` of all questions to hosts; hyper2 has VM web."""
    cloud.hosts.put("hyper2", "web")
    calls, original_ask = [], minions.ask

    def ask(cloud_, targets, fun, *args, **options):
        calls.append((fun, sorted(targets)))
        return original_ask(cloud_, targets, fun, *args, **options)

    monkeypatch.setattr(minions, "ask", ask)
    return calls


ALL = [("virt.presence", ["hyper1", "hyper2", "hyper3"])]


@pytest.mark.parametrize(
    ("purpose", "host", "hosts_to_ask"),
    [
        (Purpose.READ, "", [("virt.presence", ["hyper2"])]),
        (Purpose.ACT, "", ALL),
        (Purpose.MOVE, "hyper2", []),
        (Purpose.MOVE, "hyper1", [("virt.presence", ["hyper1", "hyper2"])]),
        (Purpose.REMOVE, "", ALL),
        (Purpose.AUTHORIZE, "hyper2", []),
        (Purpose.REPORT, "", ALL),
    ],
)
def test_which_hosts_a_purpose_asks(cloud, questions, purpose, host, hosts_to_ask):
    lastseen.record_move(cloud.opts, "web", "hyper2")

    location = locate(cloud.master, "web", purpose, host=host)

    assert questions == hosts_to_ask
    assert location.host == (host or ("" if purpose is Purpose.REPORT else "hyper2"))


@pytest.mark.parametrize("purpose", [Purpose.ACT, Purpose.REMOVE, Purpose.REPORT])
def test_a_survey_of_the_caller_is_not_repeated(cloud, questions, purpose):
    survey = inventory.survey(cloud.master, cloud.hosts.names(), "virt.host_info")
    questions.clear()

    location = locate(cloud.master, "web", purpose, survey=survey)

    assert questions == [] and location.hosts == ["hyper2"]


def test_only_rivals_that_a_survey_has_not_asked_are_asked(cloud, questions):
    for host in ("hyper1", "hyper3"):
        lastseen.refresh(cloud.opts, lastseen.ReportedNames(names_by_host={host: ["web"]}))
    survey = inventory.survey(cloud.master, ["hyper1", "hyper2"], "virt.presence", ["web"])
    questions.clear()

    locate(cloud.master, "web", Purpose.MOVE, host="hyper2", survey=survey)

    assert questions == [("virt.presence", ["hyper3"])]


# A move.


@pytest.mark.parametrize("case", ["usual", "last seen elsewhere", "a host is silent"])
def test_a_move_finds_its_vm_in_the_one_survey_that_it_needs(two, master, case, monkeypatch):
    two.put("web", "h1")
    two.hosts["h3"] = {}
    if case == "last seen elsewhere":
        lastseen.record_move(master.opts, "web", "h2")
    if case == "a host is silent":
        two.silent.add("h3")
    functions, original_ask = [], minions.ask

    def ask(cloud, targets, fun, *args, **options):
        functions.append(fun)
        return original_ask(cloud, targets, fun, *args, **options)

    monkeypatch.setattr(minions, "ask", ask)

    assert migrate.plan(master, "web", "h2")[0] == "h1"
    extra_functions = ["virt.presence"] if case == "a host is silent" else []
    assert functions == ["virt.host_info", *extra_functions]


def failing_host_info(*_args):
    raise HostCommandFailed("cannot read the file system of /srv/salt-images")


def test_a_stale_definition_does_not_move_while_the_vm_runs_on_a_host_without_host_info(
    two, master
):
    two.put("web", "h1", state="shutdown")
    two.put("web", "h2")
    two.hosts["h3"] = {}
    two.before["h2", "virt.host_info"] = failing_host_info

    with pytest.raises(NameTaken, match="'web' is on h1 and h2"):
        migrate.plan(master, "web", "h3")


def test_a_vm_moves_off_a_host_that_fails_host_info(two, master):
    two.put("web", "h1")
    two.before["h1", "virt.host_info"] = failing_host_info

    assert migrate.plan(master, "web", "h2")[0] == "h1"


def test_a_vm_moves_off_a_host_that_is_silent_to_host_info_alone(two, master):
    two.put("web", "h1")
    two.silent.add(("h1", "virt.host_info"))

    assert migrate.plan(master, "web", "h2")[0] == "h1"
