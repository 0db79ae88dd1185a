"""What a VM may still need is never found, whatever the cloud is like; what nobody needs is."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.checks.doctor.doctoranswer import DoctorFacts, LooseFile, MoveLeft, SeenVm
from saltvirt.checks.doctor.host import localleftovers
from saltvirt.checks.doctor.hostleftovers import KINDS
from saltvirt.checks.doctor.master.doctorcloud import DoctorCloud, MasterRecords, OrderLeft
from saltvirt.checks.doctor.master.masterchecks import CHECKS as OF_MASTER
from saltvirt.checks.doctor.master.run import CHECKS
from saltvirt.checks.engine import HostFailure

HOSTS = ("hyper1", "hyper2", "hyper3")
DAYS_S = 2 * 24 * 3600


def facts(**more):
    """Return what a host says that has nothing."""
    empty = {
        **{"code": "1", "copies": ["/a"], "vms": {}, "made_for": [], "shared": [], "files": []},
        **{"busy": [], "left": {}, "unreadable": {}, "moves": []},
    }
    return DoctorFacts(**{**empty, **more})


def loose(kind="disk", path="/srv/gone1_system.qcow2", vm="gone1", uuid="u-gone1", **more):
    """Return a file that nothing on its host uses."""
    given = {"quiet_s": DAYS_S, "is_shared": False, **more}
    return LooseFile(kind=kind, path=path, vm=vm, uuid=uuid, **given)


def cloud(master=None, silent=None, **hosts):
    """Return a look at a cloud of two hosts."""
    said = {"hyper1": facts(), "hyper2": facts(), **hosts}
    return DoctorCloud(
        master=master or MasterRecords(code="1", copies=["/a"]),
        hosts=said,
        failures=failures(silent or {}),
    )


def failures(silent):
    """Return the hosts without an answer, by their reasons."""
    return {host: HostFailure(reason=reason) for host, reason in silent.items()}


def found(seen):
    """Return ``[(check, where, subject)]`` of all that is found, but for unresponsive hosts."""
    out = [one for one in CHECKS.judge(seen) if one.check != "not-checked"]
    assert all(one.what and one.fix for one in out)
    return [(one.check, one.where, one.subject) for one in out]


def noting(**more):
    """Return a master that has accepted a key for VM gone1."""
    given = {"recorded_keys": {"gone1": "K"}, "present_keys": {"gone1": ("accepted", "K")}, **more}
    return MasterRecords(code="1", copies=["/a"], **given)


DISK = ("disk", "hyper1", "/srv/gone1_system.qcow2")
KEY = ("key", "master", "gone1")


def test_a_healthy_cloud_has_nothing():
    assert found(cloud()) == []


def test_a_disk_and_a_key_that_nobody_needs_are_found():
    assert found(cloud(noting(), hyper1=facts(files=[loose()]))) == [KEY, DISK]


VM = SeenVm(uuid="u-gone1", files=["/srv/other.qcow2"])
NEW = SeenVm(uuid="u-new", files=["/srv/other.qcow2"])


# What keeps a disk of a VM called gone1, and its key.
@pytest.mark.parametrize(
    ("hosts", "master", "kept"),
    [
        ({"hyper2": facts(busy=["gone1"])}, {}, {"disk", "key"}),
        ({"hyper2": facts(vms={"gone1": VM})}, {}, {"disk", "key"}),
        ({"hyper2": facts(vms={"new1": VM}, made_for=["gone1"])}, {}, {"disk", "key"}),
        # It was made anew, with the disk that was detached meanwhile.
        ({"hyper2": facts(vms={"gone1": NEW})}, {}, {"disk", "key"}),
        ({}, {"last_seen_vms": {"hyper9": ["other1"]}}, {"disk", "key"}),
        ({}, {"orders": [OrderLeft(name="gone1", phase="keyed", since="")]}, {"disk", "key"}),
        ({}, {"busy_vms": frozenset({"gone1"})}, {"disk", "key"}),
        ({}, {"answering_minions": frozenset({"gone1"})}, {"key"}),
        ({}, {"authorizations": {"gone1": ("hyper1", 99)}}, {"key"}),
        ({}, {"allowed_ids": frozenset({"gone1"})}, {"key"}),
        ({}, {"present_keys": {"gone1": ("accepted", "another")}}, {"key"}),
        ({}, {"present_keys": {"gone1": (None, None)}}, {"key"}),
    ],
)
def test_what_is_needed_stays(hosts, master, kept):
    seen = cloud(noting(**master), **{"hyper1": facts(files=[loose()]), **hosts})

    assert {one[0] for one in found(seen)} & {"disk", "key"} == {"disk", "key"} - kept


def test_nothing_of_a_vm_is_found_while_a_host_is_silent():
    seen = cloud(noting(), {"hyper3": "it does not answer"}, hyper1=facts(files=[loose()]))

    assert found(seen) == []


@pytest.mark.parametrize(
    "more",
    [{"quiet_s": 3599.0}, {"is_shared": True, "path": "/shared/a"}],
    ids=["written to a moment ago", "used by another host"],
)
def test_a_disk_that_is_used_or_was_a_moment_ago_stays(more):
    seen = cloud(
        hyper1=facts(files=[loose(uuid="u-x", **more)]), hyper2=facts(shared=["/shared/a"])
    )

    assert found(seen) == []


MOVED = SeenVm(uuid="u-gone1", files=["/srv/gone1_system.qcow2"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # The host that serves a folder sees it as its own, and the others do not.
        (loose(), facts(vms={"gone1": MOVED}, shared=MOVED.files)),
        (loose(uuid="u-x"), facts(shared=MOVED.files)),
        (loose(uuid="u-x", is_shared=True), facts(shared=["/mnt/gone1_system.qcow2"])),
        (loose(uuid="u-x", is_shared=True), facts(unreadable={"a": "broken"})),
    ],
    ids=["served, of a VM", "served, a base", "mounted elsewhere", "what it needs is not known"],
)
def test_what_hosts_share_stays_as_one_may_need_it(one, other):
    seen = cloud(hyper1=facts(files=[one]), hyper2=other)

    assert [check for check, *_rest in found(seen) if check == "disk"] == []


def test_what_a_move_left_is_found_and_a_detached_disk_is_not():
    moved = SeenVm(uuid="u-gone1", files=["/srv/gone1_system.qcow2"])
    detached = loose(path="/srv/gone1_data.qcow2")
    seen = cloud(hyper1=facts(files=[loose(), detached]), hyper2=facts(vms={"gone1": moved}))

    assert found(seen) == [DISK]


def test_files_of_a_host_that_has_a_record_nobody_can_read_are_not_judged():
    seen = cloud(hyper1=facts(files=[loose(vm="other1")], unreadable={"gone1": "broken"}))

    assert found(seen) == [("record", "hyper1", "gone1")]


@pytest.mark.parametrize("kind", ["disk", "seed", "nvram", "managed-save", "console-log"])
def test_a_file_is_only_named_as_no_record_says_that_it_was_given_up(kind):
    one = loose(kind, "/srv/gone1_file")
    (found,) = CHECKS.judge_host("hyper1", cloud(hyper1=facts(files=[one])))

    assert (found.check, found.mend) == (kind, "")


def test_a_token_is_found_when_no_authorization_can_be_for_it():
    old, new = loose("token", "/t/a", "a", ""), loose("token", "/t/b", "b", "", quiet_s=86399.0)
    owned = loose("token", "/t/c", "c", "")
    master = MasterRecords(code="1", copies=[], authorizations={"c": ("hyper1", 99)})

    seen = cloud(master, hyper1=facts(files=[old, new, owned]))

    assert found(seen) == [("token", "hyper1", "/t/a")]


def test_a_move_is_half_when_nobody_is_at_it_and_is_said_once():
    leaving = MoveLeft(name="a", purpose="departure", phase="sending", is_live=False)
    coming = MoveLeft(name="a", purpose="arrival", phase="ready", is_live=False)
    half = cloud(hyper1=facts(moves=[leaving]), hyper2=facts(moves=[coming]))

    assert found(half) == [("half-move", "hyper1", "a")]
    at_it = replace(coming, is_live=True)
    assert found(cloud(hyper1=facts(moves=[leaving]), hyper2=facts(moves=[at_it]))) == []
    ordered = MasterRecords(code="1", copies=[], busy_vms=frozenset({"a"}))
    assert found(cloud(ordered, hyper1=facts(moves=[leaving]))) == []


def test_of_a_move_whose_other_host_is_silent_it_is_not_said_that_nobody_is_at_it():
    coming = MoveLeft(name="a", purpose="arrival", phase="ready", is_live=False)
    seen = cloud(hyper1=facts(moves=[coming]))

    (alone,) = CHECKS.judge_host("hyper1", seen)
    (beside,) = CHECKS.judge_host(
        "hyper1", replace(seen, failures=failures({"hyper3": "it does not answer"}))
    )

    assert alone.what.endswith("and no command works on it")
    assert beside.what.endswith("and no host that answers works on it")


def test_certificates_of_a_host_that_is_gone_are_found_and_revoked_only_if_it_is_shut_out():
    known = {
        "code": "1",
        "copies": [],
        "certified_hosts": frozenset({"hyper1", "hyper8", "hyper9"}),
    }
    master = MasterRecords(
        **known, accepted_ids=frozenset({"hyper1"}), allowed_ids=frozenset({"hyper1", "hyper8"})
    )

    said = list(OF_MASTER.judge(cloud(master)))

    assert [(one.where, bool(one.mend)) for one in said] == [("hyper8", False), ("hyper9", True)]


@pytest.mark.parametrize(
    ("state", "expected"), [(None, 1), ("pending", 1), ("rejected", 0), ("accepted", 0)]
)
def test_a_vm_whose_key_is_gone_is_found_unless_somebody_has_rejected_it(state, expected):
    seen = cloud(noting(present_keys={"gone1": (state, "K")}), hyper2=facts(vms={"gone1": VM}))

    assert len(found(seen)) == expected


def test_what_is_a_hosts_affair_is_found_also_while_another_is_silent():
    left = {check: ["/x"] for check in KINDS if check != "token"}
    seen = cloud(silent={"hyper3": "silent"}, hyper1=facts(left=left))

    assert sorted(one[0] for one in found(seen)) == sorted(left)


def test_each_kind_of_leftover_is_found_and_mended_by_its_host():
    handlers = localleftovers._HANDLERS

    assert {check: bool(kind.mend) for check, kind in KINDS.items()} == {
        check: bool(one.mend or one.is_settled) for check, one in handlers.items()
    }
    assert [check for check, kind in KINDS.items() if bool(kind.mend) == bool(kind.fix)] == []


def test_the_page_has_a_row_for_each_check():
    page = (Path(__file__).parents[3] / "docs/doctor.md").read_text()
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.M)

    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == {*CHECKS.levels}


def test_another_virt_module_is_found_on_a_host_and_on_the_master():
    master = MasterRecords(code="1", copies=["/a"], foreign_virt=["saltext-virt"])
    seen = cloud(master, hyper1=facts(foreign_virt=["saltext-virt"]))

    (on_master, on_host) = CHECKS.judge(seen)

    assert (on_master.check, on_master.where) == ("other-virt", "master")
    assert on_master.fix.startswith("salt-pip uninstall saltext-virt; ")
    assert (on_host.check, on_host.where) == ("other-virt", "hyper1")
    assert on_host.fix.startswith("salt hyper1 pip.uninstall saltext-virt; ")


def test_code_that_is_older_or_there_twice_is_found():
    seen = cloud(hyper1=facts(code="2"), hyper2=facts(copies=["/a", "/b"]))

    assert [one[:2] for one in found(seen)] == [("code", "hyper1"), ("code-mixed", "hyper2")]


@dataclass
class Truth:
    """A cloud as it is, whoever answers: what each host has, what is needed, what is not."""

    hosts: dict = field(
        default_factory=lambda: {
            host: {"vms": {}, "files": [], "shared": [], "made_for": [], "busy": []}
            for host in HOSTS
        }
    )
    states: dict = field(default_factory=dict)
    needed: set = field(default_factory=set)
    garbage: set = field(default_factory=set)
    noted: dict = field(default_factory=dict)
    hints: dict = field(default_factory=dict)

    def put(self, draw, number):
        """Have a VM somewhere, defined, renamed, or only on record, as it is on its way."""
        name, uuid, host = f"vm{number}", f"u{number}", draw(st.sampled_from(HOSTS))
        is_shared, mine = draw(st.booleans()), self.hosts[host]
        path = f"/{'shared' if is_shared else 'srv'}/{name}_system.qcow2"
        one = loose(path=path, vm=name, uuid=uuid, is_shared=is_shared)
        called = draw(st.sampled_from([name, f"new-{name}", None]))
        if called is None:
            mine["busy"].append(name)
            mine["files"].append(one)
        else:
            mine["vms"][called] = SeenVm(uuid=uuid, files=[path])
            mine["made_for"].append(name)
        if is_shared:
            mine["shared"].append(path)
            for other in set(HOSTS) - {host}:
                self.hosts[other]["files"].append(one)
        if draw(st.booleans()):
            mine["files"].append(loose(path=f"/srv/{name}_data.qcow2", vm=name, uuid=uuid))
        self.hints.setdefault(host, []).append(name)
        self.noted[name] = name
        self.needed |= {name, uuid}

    def leave(self, draw, number):
        """Have a disk and a key of a VM that is nowhere."""
        name, host = f"gone{number}", draw(st.sampled_from(HOSTS))
        one = loose(path=f"/srv/{name}.qcow2", vm=name, uuid=f"g{number}")
        self.hosts[host]["files"].append(one)
        self.noted[name] = name
        self.garbage |= {("disk", host, one.path), ("key", "master", name)}

    def are(self, state):
        """Return the hosts in a state."""
        return [host for host in HOSTS if self.states[host] == state]

    def look(self):
        """Return what is seen of it."""
        away = [*self.are("silent"), *self.are("shut out")]
        master = MasterRecords(
            code="1",
            copies=[],
            recorded_keys=self.noted,
            present_keys={name: ("accepted", name) for name in self.noted},
            # A host that is away tells nothing, and may have more than anybody remembers.
            last_seen_vms={host: self.hints.get(host, []) for host in away},
        )
        return DoctorCloud(
            master=master,
            hosts={host: facts(**self.hosts[host]) for host in self.are("well")},
            failures=failures(dict.fromkeys(self.are("silent"), "silent")),
        )


@st.composite
def clouds(draw):
    """Return a look at a cloud, and the truth about it."""
    truth = Truth()
    state = st.sampled_from(["well", "well", "silent", "shut out"])
    truth.states = {host: draw(state) for host in HOSTS}
    for number in range(draw(st.integers(0, 4))):
        truth.put(draw, number)
    for number in range(draw(st.integers(0, 3))):
        truth.leave(draw, number)
    return truth.look(), truth


@pytest.mark.slow
@settings(max_examples=400)
@given(clouds())
def test_nothing_that_is_needed_is_ever_found_and_what_is_not_is_when_all_answer(given):
    seen, truth = given

    there = set(found(seen))

    files = {one.path: one for said in seen.hosts.values() for one in said.files}
    for check, _where, subject in there:
        if check == "disk":
            assert files[subject].uuid not in truth.needed
        if check == "key":
            assert subject not in truth.needed
    assert there == (truth.garbage if len(truth.are("well")) == len(HOSTS) else set())


def test_an_entry_of_the_trash_is_not_called_a_vm():
    said = facts(
        unreadable={"db": "no", "web2-0a1b2c3d": "why"}, unreadable_trash=["web2-0a1b2c3d"]
    )

    whats = [one.what for one in CHECKS.judge_host("hyper1", cloud(hyper1=said))]

    assert whats == [
        "not all is known of VM db, so no file there is judged: no",
        "not all is known of entry 'web2-0a1b2c3d' of the trash, so no file there is judged: why",
    ]
