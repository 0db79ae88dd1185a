"""The doctor never finds what a VM may need, in no cloud, and finds what no VM needs."""

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
    """Return the facts of an empty host."""
    empty = {
        **{"code": "1", "copies": ["/a"], "vms": {}, "made_for": [], "shared": [], "files": []},
        **{"busy": [], "left": {}, "unreadable": {}, "moves": []},
    }
    return DoctorFacts(**{**empty, **more})


def loose_file_of(kind="disk", path="/srv/gone1_system.qcow2", vm="gone1", uuid="u-gone1", **more):
    """Return a loose file: nothing on its host uses it."""
    fields = {"quiet_s": DAYS_S, "is_shared": False, **more}
    return LooseFile(kind=kind, path=path, vm=vm, uuid=uuid, **fields)


def cloud(master=None, reasons_by_silent_host=None, **hosts):
    """Return the doctor's view of a cloud of two hosts."""
    facts_by_host = {"hyper1": facts(), "hyper2": facts(), **hosts}
    return DoctorCloud(
        master=master or MasterRecords(code="1", copies=["/a"]),
        hosts=facts_by_host,
        failures=failures(reasons_by_silent_host or {}),
    )


def failures(reasons_by_host):
    """Return the hosts without an answer, by their reasons."""
    return {host: HostFailure(reason=reason) for host, reason in reasons_by_host.items()}


def finding_keys(view):
    """Return ``[(check, where, subject)]`` of all findings but those of unresponsive hosts."""
    findings = [finding for finding in CHECKS.judge(view) if finding.check != "not-checked"]
    assert all(finding.what and finding.fix for finding in findings)
    return [(finding.check, finding.where, finding.subject) for finding in findings]


def master_with_key(**more):
    """Return a master that has accepted a key for VM gone1."""
    fields = {"recorded_keys": {"gone1": "K"}, "present_keys": {"gone1": ("accepted", "K")}, **more}
    return MasterRecords(code="1", copies=["/a"], **fields)


DISK = ("disk", "hyper1", "/srv/gone1_system.qcow2")
KEY = ("key", "master", "gone1")


def test_a_healthy_cloud_has_nothing():
    assert finding_keys(cloud()) == []


def test_a_disk_and_a_key_without_a_vm_are_found():
    assert finding_keys(cloud(master_with_key(), hyper1=facts(files=[loose_file_of()]))) == [
        KEY,
        DISK,
    ]


VM = SeenVm(uuid="u-gone1", files=["/srv/other.qcow2"])
NEW = SeenVm(uuid="u-new", files=["/srv/other.qcow2"])


# Facts that protect a disk of a VM called gone1, and its key.
@pytest.mark.parametrize(
    ("hosts", "master", "expected"),
    [
        ({"hyper2": facts(busy=["gone1"])}, {}, {"disk", "key"}),
        ({"hyper2": facts(vms={"gone1": VM})}, {}, {"disk", "key"}),
        ({"hyper2": facts(vms={"new1": VM}, made_for=["gone1"])}, {}, {"disk", "key"}),
        # The VM was created anew, and the disk was detached before.
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
def test_a_disk_and_a_key_that_a_vm_may_need_are_not_found(hosts, master, expected):
    view = cloud(master_with_key(**master), **{"hyper1": facts(files=[loose_file_of()]), **hosts})

    assert {key[0] for key in finding_keys(view)} & {"disk", "key"} == {"disk", "key"} - expected


def test_nothing_of_a_vm_is_found_while_a_host_is_silent():
    view = cloud(
        master_with_key(), {"hyper3": "it does not answer"}, hyper1=facts(files=[loose_file_of()])
    )

    assert finding_keys(view) == []


@pytest.mark.parametrize(
    "more",
    [{"quiet_s": 3599.0}, {"is_shared": True, "path": "/shared/a"}],
    ids=["written to a moment ago", "used by another host"],
)
def test_a_disk_in_use_or_just_written_is_not_found(more):
    view = cloud(
        hyper1=facts(files=[loose_file_of(uuid="u-x", **more)]), hyper2=facts(shared=["/shared/a"])
    )

    assert finding_keys(view) == []


MOVED = SeenVm(uuid="u-gone1", files=["/srv/gone1_system.qcow2"])


@pytest.mark.parametrize(
    ("loose_file", "facts_of_other"),
    [
        # The host that serves a folder sees it as its own, and the others do not.
        (loose_file_of(), facts(vms={"gone1": MOVED}, shared=MOVED.files)),
        (loose_file_of(uuid="u-x"), facts(shared=MOVED.files)),
        (loose_file_of(uuid="u-x", is_shared=True), facts(shared=["/mnt/gone1_system.qcow2"])),
        (loose_file_of(uuid="u-x", is_shared=True), facts(unreadable={"a": "broken"})),
    ],
    ids=["served, of a VM", "served, a base", "mounted elsewhere", "what it needs is not known"],
)
def test_shared_files_that_another_host_may_need_are_not_found(loose_file, facts_of_other):
    view = cloud(hyper1=facts(files=[loose_file]), hyper2=facts_of_other)

    assert [check for check, *_parts in finding_keys(view) if check == "disk"] == []


def test_leftovers_of_a_move_are_found_and_a_detached_disk_is_not():
    moved_vm = SeenVm(uuid="u-gone1", files=["/srv/gone1_system.qcow2"])
    detached = loose_file_of(path="/srv/gone1_data.qcow2")
    view = cloud(
        hyper1=facts(files=[loose_file_of(), detached]), hyper2=facts(vms={"gone1": moved_vm})
    )

    assert finding_keys(view) == [DISK]


def test_files_of_a_host_with_an_unreadable_record_are_not_judged():
    view = cloud(hyper1=facts(files=[loose_file_of(vm="other1")], unreadable={"gone1": "broken"}))

    assert finding_keys(view) == [("record", "hyper1", "gone1")]


@pytest.mark.parametrize("kind", ["disk", "seed", "nvram", "managed-save", "console-log"])
def test_a_file_without_a_record_of_its_end_is_only_named(kind):
    loose_file = loose_file_of(kind, "/srv/gone1_file")
    (finding,) = CHECKS.judge_host("hyper1", cloud(hyper1=facts(files=[loose_file])))

    assert (finding.check, finding.mend) == (kind, "")


def test_a_token_is_found_when_no_authorization_can_be_for_it():
    old, new = (
        loose_file_of("token", "/t/a", "a", ""),
        loose_file_of("token", "/t/b", "b", "", quiet_s=86399.0),
    )
    owned = loose_file_of("token", "/t/c", "c", "")
    master = MasterRecords(code="1", copies=[], authorizations={"c": ("hyper1", 99)})

    view = cloud(master, hyper1=facts(files=[old, new, owned]))

    assert finding_keys(view) == [("token", "hyper1", "/t/a")]


def test_an_abandoned_move_is_found_once():
    departure = MoveLeft(name="a", purpose="departure", phase="sending", is_live=False)
    arrival = MoveLeft(name="a", purpose="arrival", phase="ready", is_live=False)
    half_move = cloud(hyper1=facts(moves=[departure]), hyper2=facts(moves=[arrival]))

    assert finding_keys(half_move) == [("half-move", "hyper1", "a")]
    at_it = replace(arrival, is_live=True)
    assert finding_keys(cloud(hyper1=facts(moves=[departure]), hyper2=facts(moves=[at_it]))) == []
    ordered = MasterRecords(code="1", copies=[], busy_vms=frozenset({"a"}))
    assert finding_keys(cloud(ordered, hyper1=facts(moves=[departure]))) == []


def test_a_move_with_a_silent_host_is_not_called_abandoned():
    move = MoveLeft(name="a", purpose="arrival", phase="ready", is_live=False)
    view = cloud(hyper1=facts(moves=[move]))

    (finding,) = CHECKS.judge_host("hyper1", view)
    (finding_with_silent_host,) = CHECKS.judge_host(
        "hyper1", replace(view, failures=failures({"hyper3": "it does not answer"}))
    )

    assert finding.what.endswith("and no command works on it")
    assert finding_with_silent_host.what.endswith("and no host that answers works on it")


def test_certificates_of_a_lost_host_are_revoked_only_if_it_is_shut_out():
    records = {
        "code": "1",
        "copies": [],
        "certified_hosts": frozenset({"hyper1", "hyper8", "hyper9"}),
    }
    master = MasterRecords(
        **records, accepted_ids=frozenset({"hyper1"}), allowed_ids=frozenset({"hyper1", "hyper8"})
    )

    findings = list(OF_MASTER.judge(cloud(master)))

    assert [(finding.where, bool(finding.mend)) for finding in findings] == [
        ("hyper8", False),
        ("hyper9", True),
    ]


@pytest.mark.parametrize(
    ("state", "expected"), [(None, 1), ("pending", 1), ("rejected", 0), ("accepted", 0)]
)
def test_a_vm_without_an_accepted_key_is_found_unless_its_key_was_rejected(state, expected):
    view = cloud(
        master_with_key(present_keys={"gone1": (state, "K")}), hyper2=facts(vms={"gone1": VM})
    )

    assert len(finding_keys(view)) == expected


def test_leftovers_of_one_host_are_found_while_another_is_silent():
    leftovers = {check: ["/x"] for check in KINDS if check != "token"}
    view = cloud(reasons_by_silent_host={"hyper3": "silent"}, hyper1=facts(left=leftovers))

    assert sorted(finding[0] for finding in finding_keys(view)) == sorted(leftovers)


def test_each_kind_of_leftover_is_found_and_mended_by_its_host():
    handlers = localleftovers._HANDLERS

    assert {check: bool(kind.mend) for check, kind in KINDS.items()} == {
        check: bool(handler.mend or handler.is_settled) for check, handler in handlers.items()
    }
    assert [check for check, kind in KINDS.items() if bool(kind.mend) == bool(kind.fix)] == []


def test_the_page_has_a_row_for_each_check():
    page = (Path(__file__).parents[3] / "docs/doctor.md").read_text()
    rows = re.findall(r"^\| (`[^|]+`) \|", page, re.M)

    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == {*CHECKS.levels}


def test_another_virt_module_is_found_on_a_host_and_on_the_master():
    master = MasterRecords(code="1", copies=["/a"], foreign_virt=["saltext-virt"])
    view = cloud(master, hyper1=facts(foreign_virt=["saltext-virt"]))

    (on_master, on_host) = CHECKS.judge(view)

    assert (on_master.check, on_master.where) == ("other-virt", "master")
    assert on_master.fix.startswith("salt-pip uninstall saltext-virt; ")
    assert (on_host.check, on_host.where) == ("other-virt", "hyper1")
    assert on_host.fix.startswith("salt hyper1 pip.uninstall saltext-virt; ")


def test_older_or_duplicate_code_is_found():
    view = cloud(hyper1=facts(code="2"), hyper2=facts(copies=["/a", "/b"]))

    assert [finding[:2] for finding in finding_keys(view)] == [
        ("code", "hyper1"),
        ("code-mixed", "hyper2"),
    ]


@dataclass
class Truth:
    """A whole cloud, also its silent hosts: what each host has, what is needed, what is garbage."""

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
        """Put a VM on a host: defined, renamed, or only on record while it moves."""
        name, uuid, host = f"vm{number}", f"u{number}", draw(st.sampled_from(HOSTS))
        is_shared, host_facts = draw(st.booleans()), self.hosts[host]
        path = f"/{'shared' if is_shared else 'srv'}/{name}_system.qcow2"
        loose_file = loose_file_of(path=path, vm=name, uuid=uuid, is_shared=is_shared)
        new_name = draw(st.sampled_from([name, f"new-{name}", None]))
        if new_name is None:
            host_facts["busy"].append(name)
            host_facts["files"].append(loose_file)
        else:
            host_facts["vms"][new_name] = SeenVm(uuid=uuid, files=[path])
            host_facts["made_for"].append(name)
        if is_shared:
            host_facts["shared"].append(path)
            for other_host in set(HOSTS) - {host}:
                self.hosts[other_host]["files"].append(loose_file)
        if draw(st.booleans()):
            host_facts["files"].append(
                loose_file_of(path=f"/srv/{name}_data.qcow2", vm=name, uuid=uuid)
            )
        self.hints.setdefault(host, []).append(name)
        self.noted[name] = name
        self.needed |= {name, uuid}

    def leave(self, draw, number):
        """Leave a disk and a key of a VM that no host has."""
        name, host = f"gone{number}", draw(st.sampled_from(HOSTS))
        loose_file = loose_file_of(path=f"/srv/{name}.qcow2", vm=name, uuid=f"g{number}")
        self.hosts[host]["files"].append(loose_file)
        self.noted[name] = name
        self.garbage |= {("disk", host, loose_file.path), ("key", "master", name)}

    def are(self, state):
        """Return the hosts in a state."""
        return [host for host in HOSTS if self.states[host] == state]

    def look(self):
        """Return the doctor's view of the cloud."""
        away_hosts = [*self.are("silent"), *self.are("shut out")]
        master = MasterRecords(
            code="1",
            copies=[],
            recorded_keys=self.noted,
            present_keys={name: ("accepted", name) for name in self.noted},
            # A host that is away answers nothing, and may have more VMs than were last seen there.
            last_seen_vms={host: self.hints.get(host, []) for host in away_hosts},
        )
        return DoctorCloud(
            master=master,
            hosts={host: facts(**self.hosts[host]) for host in self.are("well")},
            failures=failures(dict.fromkeys(self.are("silent"), "silent")),
        )


@st.composite
def clouds(draw):
    """Draw the doctor's view of a cloud, and the truth about it."""
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
def test_no_needed_file_is_found_and_all_garbage_is_when_all_hosts_answer(view_and_truth):
    view, truth = view_and_truth

    findings = set(finding_keys(view))

    files = {file.path: file for host_facts in view.hosts.values() for file in host_facts.files}
    for check, _where, subject in findings:
        if check == "disk":
            assert files[subject].uuid not in truth.needed
        if check == "key":
            assert subject not in truth.needed
    assert findings == (truth.garbage if len(truth.are("well")) == len(HOSTS) else set())


def test_an_entry_of_the_trash_is_not_called_a_vm():
    host_facts = facts(
        unreadable={"db": "no", "web2-0a1b2c3d": "why"}, unreadable_trash=["web2-0a1b2c3d"]
    )

    texts = [finding.what for finding in CHECKS.judge_host("hyper1", cloud(hyper1=host_facts))]

    assert texts == [
        "not all is known of VM db, so no file there is judged: no",
        "not all is known of entry 'web2-0a1b2c3d' of the trash, so no file there is judged: why",
    ]
