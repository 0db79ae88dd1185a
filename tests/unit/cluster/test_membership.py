"""The master decides by minion ids alone which minions are hypervisors."""

import json
import multiprocessing
import stat
from pathlib import Path

import keypairs
import pytest
import salt.config
import salt.loader
from salt.utils.minions import CkMinions
from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.membership import Members
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import BadArgument, BadConfig, MasterError

IDS = ["guest", "hyper1", "hyper2", "hyper10", "rack1.example.org", "web1"]
GROUPS = {
    "listed": "L@hyper1,hyper2",
    "globs": ["hyper?", "or", "rack*"],
    "ids": ["hyper1", "guest"],
    "nested": "N@listed or rack1*",
    "deep": ["N@nested", "or", "N@globs"],
}


@pytest.fixture
def accepting_master(opts):
    """A master that has accepted some minions, and has nodegroups."""
    for minion_id in IDS:
        minionkeys.accept(opts, minion_id, keypairs.named("a guest")[0])
    opts["nodegroups"] = GROUPS
    return opts


@pytest.mark.parametrize(
    "target",
    [
        "hyper1",
        "hyper*",
        "hyper[12]",
        "L@hyper1,web1",
        "hyper1 or web*",
        *(f"N@{name}" for name in GROUPS),
    ],
)
def test_ids_globs_and_nodegroups_match_as_in_salt(accepting_master, target):
    as_salt = CkMinions(accepting_master).check_minions(target, "compound", greedy=False)["minions"]

    members = Members(patterns=membership.patterns(target, GROUPS))

    assert (
        [minion_id for minion_id in IDS if members.has(minion_id)]
        == sorted(as_salt, key=IDS.index)
        != []
    )


def test_a_list_of_ids_matches_each_of_them():
    assert membership.patterns(["hyper1", "rack*, web1", "N@listed"], GROUPS) == (
        "hyper1",
        "rack*",
        "web1",
        "hyper2",
    )
    assert membership.patterns((), {}) == membership.patterns("", {}) == ()


@pytest.mark.parametrize(
    "target",
    [
        "G@virt_hypervisor:True",
        "G|virt_hypervisor|True",
        "P@os:.*",
        "I@role:hypervisor",
        "J@role:.*",
        "S@10.0.0.0/8",
        "E@hyper.*",
        "R@%hypers",
        "hyper* and G@os:Debian",
        "not web*",
        "( hyper1 )",
        ["hyper1", "G@virt_hypervisor:True"],
        "N@by_grain",
    ],
)
def test_a_target_that_is_no_id_is_refused_with_the_command_to_use(target):
    if target == "G|virt_hypervisor|True":
        target = "G|@virt_hypervisor|True"

    with pytest.raises(membership.BadTarget) as refused:
        membership.patterns(target, {"by_grain": ["N@deeper"], "deeper": "G@a:b"})

    line = str(refused.value)
    assert line.startswith("option virt:hypervisors: ") and "\n" not in line
    assert "salt-run virt.allow HOST" in line


@pytest.mark.parametrize(
    ("target", "groups", "reason"),
    [
        ("N@none", {}, "this master has no nodegroup 'none'"),
        ("N@a", {"a": "N@b", "b": ["N@a"]}, "the nodegroup 'a' contains itself"),
        ("N@a", {"a": {"b": 1}}, "option nodegroups:a: expected text or a list of texts"),
        ("L@hyper*", {}, "write 'hyper*' without the L@"),
        (7, {}, "option virt:hypervisors: expected text"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(target, groups, reason):
    with pytest.raises(BadConfig) as refused:
        membership.patterns(target, groups)

    assert reason in str(refused.value) and "\n" not in str(refused.value)


MEMBERS = Members(
    patterns=("hyper*", "rack1"), allowed=frozenset({"web7"}), disallowed=frozenset({"hyper4"})
)


@pytest.mark.parametrize(
    ("minion", "by"),
    [
        ("hyper1", "virt:hypervisors: hyper*"),
        ("rack1", "virt:hypervisors: rack1"),
        ("web7", "virt.allow"),
        ("web1", None),
        ("hyper4", None),
        ("HYPER4", None),
        ("Hyper1", None),
    ],
)
def test_a_hypervisor_is_matched_or_allowed_and_not_shut_out(minion, by):
    assert MEMBERS.why(minion) == by and MEMBERS.has(minion) is bool(by)


def test_no_glob_matches_an_id_of_an_automatically_accepted_key():
    members = Members(patterns=("hyper*", "rack1.p"), allowed=frozenset({"own.p"}))

    assert members.has("hyper9") and not members.has("hyper9.p") and not members.has("hyper9.P")
    # The operator who names an id has checked its key.
    assert members.has("rack1.p") and members.has("own.p")
    # Such an id is no VM's, either.
    assert members.reserved("hyper9.p")


def test_shutting_out_wins_over_all_other_options():
    assert not Members(allowed=frozenset({"h"}), disallowed=frozenset({"h"})).has("h")
    assert not Members(patterns=("h",), disallowed=frozenset({"H"})).has("h")


@pytest.mark.parametrize("name", ["hyper9", "HYPER9", "rack1", "Rack1", "web7", "WEB7", "hyper4"])
def test_a_vm_never_has_a_name_that_is_a_hypervisors(name):
    with pytest.raises(BadArgument, match=f"a VM cannot be called '{name}'"):
        MEMBERS.refuse_guest(name)


@pytest.mark.parametrize("name", ["web1", "hype", "rack11", "xhyper1"])
def test_any_other_name_can_be_a_vms(name):
    MEMBERS.refuse_guest(name)


def test_a_guest_that_is_shut_out_is_no_error():
    assert MEMBERS.would_have("hyper9") and not MEMBERS.would_have("hyper4")


def test_the_error_about_an_unknown_host_names_the_next_command():
    assert "salt-run virt.allow web1" in MEMBERS.why_not("web1")
    assert "was shut out" in MEMBERS.why_not("hyper4")
    assert MEMBERS.why_not("hyper1") is None


# The list beside the CA.


def allowed_and_disallowed(opts):
    """Return the allowed and the disallowed ids of the list."""
    list_of_master = membership.read_listed(opts)
    return sorted(list_of_master.allowed), sorted(list_of_master.disallowed)


def test_allowing_and_shutting_out_undo_each_other(opts):
    membership.allow(opts, ["hyper1", "hyper2"])
    membership.disallow(opts, ["hyper2"])
    assert allowed_and_disallowed(opts) == (["hyper1"], ["hyper2"])

    membership.allow(opts, ["HYPER2"])

    assert allowed_and_disallowed(opts) == (["HYPER2", "hyper1"], [])


def test_the_list_is_private_and_synced_to_the_disk(opts, synced):
    membership.allow(opts, ["hyper1"])

    path = membership.folder(opts) / "hypervisors.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [name for name, _content in synced] == [synced[0][0], "libvirt"]
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["hypervisors.json"]


def _allow(opts, number):
    membership.allow(opts, [f"hyper{number}"])


def test_two_concurrent_changes_of_the_list_are_both_kept(opts):
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=_allow, args=(opts, number)) for number in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert allowed_and_disallowed(opts)[0] == [f"hyper{number}" for number in range(6)]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        json.dumps({"version": 2, "allowed": ["hyper1"], "disallowed": []}),
        json.dumps({"version": 1, "allowed": [1], "disallowed": []}),
        json.dumps({"version": 1, "allowed": None, "disallowed": []}),
    ],
)
def test_a_list_that_cannot_be_read_is_an_error_and_is_not_written_over(opts, content):
    membership.allow(opts, ["hyper1"])
    path = membership.folder(opts) / "hypervisors.json"
    path.write_text(content)

    for work in (membership.read_listed, lambda opts: membership.allow(opts, ["hyper2"])):
        with pytest.raises(MasterError, match="hypervisors.json cannot be read .*virt_pki.export"):
            work(opts)

    assert path.read_text() == content


def test_without_a_list_and_a_configuration_there_are_no_hypervisors(opts):
    members = membership.read_members(opts)

    assert not any(members.has(minion_id) for minion_id in IDS)


def test_the_masters_configuration_and_its_list_are_united(accepting_master):
    accepting_master["virt"] = {"hypervisors": "N@listed"}
    membership.allow(accepting_master, ["web1"])
    membership.disallow(accepting_master, ["hyper2"])

    members = membership.read_members(accepting_master)

    assert [minion_id for minion_id in IDS if members.has(minion_id)] == ["hyper1", "web1"]


# VMs that a glob has come to match.


def test_a_vm_of_a_hypervisor_is_a_guest_under_any_name(opts):
    for vm, host in (("hyper9", "hyper1"), ("HYPER8", "hyper2"), ("web1", "hyper1")):
        lastseen.record_move(opts, vm, host)
    lastseen.record_move(opts, "hyper1", "guest")
    members = Members(patterns=("hyper*",), disallowed=frozenset({"hyper7"}))

    guests = membership.find_last_seen_guests(opts, members, ["hyper1", "hyper2"])

    assert guests == {"hyper9": ["hyper1"], "HYPER8": ["hyper2"]}
    with pytest.raises(MasterError) as refused:
        membership.refuse_guests(members, guests)
    assert "hyper9 is a VM on hyper1, and virt:hypervisors matches it (hyper*)" in str(
        refused.value
    )
    assert str(refused.value).endswith("salt-run virt.disallow HYPER8 hyper9")


def test_the_error_never_suggests_shutting_out_a_real_hypervisor():
    members = Members(patterns=("hyper*",), allowed=frozenset({"kvm1"}))

    with pytest.raises(MasterError) as refused:
        membership.refuse_guests(members, {"KVM1": ["hyper3"], "hyper9": ["hyper3"]})

    message = str(refused.value)
    assert "KVM1 is a VM on hyper3, and it is the name of the hypervisor kvm1" in message
    assert "rename or remove the VM KVM1 there" in message
    assert message.endswith("virt.disallow hyper9")


def test_thousands_of_hosts_and_vms_are_checked_in_one_pass():
    members = Members(patterns=tuple(f"hyper{n}" for n in range(2000)), allowed=frozenset({"h"}))
    vms_by_host = {f"hyper{n}": [f"vm{n}-{m}" for m in range(20)] for n in range(2000)}
    looked = []

    class Counted(str):
        def casefold(self):
            looked.append(self)
            return super().casefold()

    assert (
        membership.find_guests(members, {h: map(Counted, vms) for h, vms in vms_by_host.items()})
        == {}
    )
    assert len(looked) == 2 * 20 * 2000


def test_the_list_is_beside_the_ca(opts):
    assert membership.folder(opts) == Path(opts["pki_dir"]) / "libvirt"


MANY = [f"hyper{n:03}" for n in range(300)]
GUESTS = [*(f"web{n}" for n in range(50)), "hyper-web"]


@pytest.mark.parametrize(
    ("option", "allowed", "disallowed"),
    [
        ("hyper[0-9]*", [], []),
        (["hyper0*", "hyper[12]*"], ["other", "web7"], []),
        ("hyper*", [], ["hyper-web"]),
        (["hyper*", "other"], ["web1"], ["hyper-web", "hyper017", "hyper299"]),
    ],
)
@pytest.mark.slow
def test_a_compound_target_matches_exactly_these_hypervisors(opts, option, allowed, disallowed):
    accepted = [*MANY, *GUESTS, "other"]
    members = Members(
        patterns=membership.patterns(option, {}),
        allowed=frozenset(allowed),
        disallowed=frozenset(disallowed),
    )
    targets = [minion_id for minion_id in accepted if members.has(minion_id)]
    for minion_id in accepted:
        minionkeys.accept(opts, minion_id, "a key")

    target = membership.compound_target(members, targets, accepted)

    assert len(targets) >= 297 and len(target) < 100
    on_master = CkMinions(opts).check_minions(target, "compound")["minions"]
    assert sorted(on_master) == sorted(targets)
    minion_opts = salt.config.minion_config(None)
    matches = salt.loader.matchers(minion_opts)["compound_match.match"]
    matching_minions = [
        minion_id
        for minion_id in accepted
        if matches(target, opts=minion_opts, minion_id=minion_id)
    ]
    assert matching_minions == targets


@pytest.mark.parametrize(
    ("option", "targets", "accepted_ids"),
    [
        (MANY, MANY, MANY),
        ("hyper*", MANY[:10], MANY),
        ("hyper*", [*MANY, "a or *"], [*MANY, "a or *"]),
        ("hyper*", MANY, [*MANY, "hyper0,hyper1"]),
    ],
    ids=["listed", "few of many", "odd id beside", "odd id out"],
)
def test_without_a_short_target_hosts_are_listed(option, targets, accepted_ids):
    members = Members(patterns=membership.patterns(option, {}), allowed=frozenset(["a or *"]))

    assert membership.compound_target(members, targets, accepted_ids) is None


def test_suggested_commands_quote_the_names_of_hosts():
    shut_out = membership.Members(disallowed=frozenset(["rack 1"]))

    for members in (membership.Members(), shut_out):
        assert members.why_not("rack 1").endswith("run: salt-run virt.allow 'rack 1'")
    assert "see: salt 'rack 1' test.ping" in minions._no_reply("rack 1", "virt.list", None, 1).error
