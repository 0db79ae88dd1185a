"""One command allows hypervisors; a minion that is or was a guest is never allowed."""

from datetime import timedelta
from types import SimpleNamespace

import keypairs
import pytest
from askedca import ask
from askedpillar import asked
from saltvirt.ca import store
from saltvirt.certificates.master import allowing, certificates
from saltvirt.cluster import membership, minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import BadArgument, BadConfig, MasterError
from saltvirt.core.salt import compat

HOSTS = ["hyper1", "hyper2", "hyper3"]


@pytest.fixture
def master(opts):
    """A master with three hosts and a guest, which all claim to be hypervisors."""
    for minion_id in [*HOSTS, "guest"]:
        minionkeys.accept(opts, minion_id, keypairs.named("a guest")[0])
        asked(opts, minion_id, {"virt_hypervisor": True})
    asked(opts, "stranger", {"virt_hypervisor": True})  # the key of this one is deleted
    return opts


@pytest.fixture
def notices(monkeypatch):
    """The hosts that were notified of a revocation; a test sets the one that is silent."""
    recorder = SimpleNamespace(hosts=[], silent=None)

    def apply_keys(_cloud, hosts, **_options):
        recorder.hosts.append(list(hosts))
        if recorder.silent in hosts:
            raise MasterError(f"{recorder.silent}: no answer within 120 s")
        return dict.fromkeys(hosts, "in place")

    monkeypatch.setattr(certificates, "apply_keys", apply_keys)
    return recorder


def now():
    """Return the time, as the runner does."""
    return store.utc_now()


def allowed_hosts(opts):
    """Return the allowed hypervisors."""
    return inventory.allowed_hosts(Cloud.of(opts))


def test_an_unconfigured_master_has_no_hypervisors(master):
    assert allowed_hosts(master) == []


def test_the_error_without_hypervisors_names_the_one_command_to_run(master):
    with pytest.raises(MasterError) as refused:
        inventory.all_hosts(Cloud.of(master))

    line = str(refused.value)
    assert "guest, hyper1, hyper2 and hyper3 may be" in line and "\n" not in line
    command = "salt-run virt.allow guest hyper1 hyper2 hyper3"
    assert line.endswith(command)
    candidates = refused.value.table["candidates"]
    assert set(candidates) == {"guest", *HOSTS}
    assert candidates["hyper1"]["fingerprint"] == compat.KeyStore(master).fingerprint("hyper1")
    allowing.allow(master, ["hyper1", "hyper2", "hyper3"])
    assert inventory.all_hosts(Cloud.of(master)) == HOSTS


def test_a_guest_is_named_as_one_and_left_out_of_the_command(master):
    lastseen.record_move(master, "guest", "hyper2")

    with pytest.raises(MasterError) as refused:
        inventory.all_hosts(Cloud.of(master))

    assert str(refused.value).endswith("salt-run virt.allow hyper1 hyper2 hyper3")
    assert refused.value.table["candidates"]["guest"]["vm_on"] == ["hyper2"]


def test_hosts_that_have_certificates_today_are_shown_and_allowed_with_one_command(opts):
    for minion_id in ("old1", "old2", "over", "revoked"):
        minionkeys.accept(opts, minion_id, keypairs.named("a guest")[0])
    place = certificates.open_authorities(opts)
    ask(place, "old1", now=now())
    ask(place, "old2", now=now())
    ask(place, "over", now=now() - timedelta(days=1000))
    ask(place, "revoked", now=now())
    certificates.revoke_hosts(opts, ["revoked"], now())

    members = allowing.show_members(opts)

    assert {minion_id: row["why"] for minion_id, row in members["candidates"].items()} == {
        "old1": "has certificates",
        "old2": "has certificates",
    }
    assert members["allow_them"] == "salt-run virt.allow old1 old2"
    allowing.allow(opts, members["allow_them"].split()[2:])
    assert allowed_hosts(opts) == ["old1", "old2"]


def test_without_candidates_the_error_shows_how_to_name_hosts(opts):
    with pytest.raises(MasterError, match="name yours: salt-run virt.allow HOST") as refused:
        inventory.all_hosts(Cloud.of(opts))

    assert refused.value.table == {}


def test_allowed_hosts_without_accepted_keys_are_an_error(opts):
    opts["virt"] = {"hypervisors": "hyper1"}

    with pytest.raises(MasterError, match="no allowed hypervisor has an accepted key"):
        inventory.all_hosts(Cloud.of(opts))


def test_a_target_of_an_older_configuration_is_refused_with_the_hosts_it_matched(master):
    master["virt"] = {"hypervisors": "G@virt_hypervisor:True or hyper1"}
    lastseen.record_move(master, "guest", "hyper1")

    with pytest.raises(BadConfig) as refused:
        Cloud.of(master)

    assert "'G@virt_hypervisor:True' is what minions report about themselves" in str(refused.value)
    assert str(refused.value).endswith("run: salt-run virt.allow hyper1 hyper2 hyper3")
    assert set(refused.value.table["candidates"]) == {"guest", *HOSTS}
    allowing.allow(master, HOSTS)  # the suggested command works while the option is still set
    with pytest.raises(BadConfig, match="or take it out"):
        Cloud.of(master)


def test_hypervisors_are_shown_with_the_option_that_allows_them(master):
    master["virt"] = {"hypervisors": ["hyper1", "hyper8", "rack*"]}
    allowing.allow(master, ["hyper2"])
    membership.disallow(master, ["hyper3"])

    members = allowing.show_members(master)

    assert {minion_id: row["by"] for minion_id, row in members["hypervisors"].items()} == {
        "hyper1": "virt:hypervisors: hyper1",
        "hyper2": "virt.allow",
    }
    assert (members["disallowed"], members["without_key"]) == (["hyper3"], ["hyper8"])
    assert set(members["candidates"]) == {"guest"}
    assert members["allow_them"] == "salt-run virt.allow guest"


@pytest.mark.parametrize(
    ("targets", "ids"),
    [
        (["hyper1", "hyper2"], ["hyper1", "hyper2"]),
        (["hyper1,hyper2"], ["hyper1", "hyper2"]),
        (["hyper1,", "hyper2"], ["hyper1", "hyper2"]),  # hyper1, hyper2
        ([["hyper1"], "hyper3"], ["hyper1", "hyper3"]),
        (["hyper*", "hyper1"], HOSTS),
    ],
)
def test_hosts_are_allowed_by_ids_and_by_globs_that_match_now(master, targets, ids):
    assert allowing.allow(master, targets) == {"allowed": ids}
    for later in ("hyper4", "hyper5.p"):
        minionkeys.accept(master, later, keypairs.named("a guest")[0])

    assert allowed_hosts(master) == ids
    assert "hyper5.p" not in allowing.allow(master, ["hyper*"])["allowed"]


@pytest.mark.parametrize(
    ("targets", "reason"),
    [
        (["hyper9"], "no key of 'hyper9' is accepted; .* accept it: salt-key -a hyper9"),
        (["hyper1", "rack*"], "'rack[*]' matches none of the minions that are accepted"),
        ([7], "7 is not text; quote it, on a command line twice: \"'7'\""),
        ([""], "'' is not the id of a minion"),
        ([" ,"], "' ,' is not the id of a minion"),
        ([[]], "say which: salt-run virt.allow HOST"),
    ],
)
def test_a_wrong_id_is_refused_and_no_host_is_allowed(master, targets, reason):
    with pytest.raises(BadArgument, match=reason):
        allowing.allow(master, targets)

    assert allowed_hosts(master) == []


def test_a_vm_is_never_allowed_even_beside_its_own_host(master):
    lastseen.record_move(master, "guest", "hyper1")

    with pytest.raises(MasterError, match="guest is a VM on hyper1; a VM is never a hypervisor"):
        allowing.allow(master, ["hyper*", "guest"])

    assert allowed_hosts(master) == []


def test_old_answers_of_a_guest_keep_no_host_out(master):
    lastseen.record_move(master, "hyper1", "guest")

    assert allowing.allow(master, HOSTS) == {"allowed": HOSTS}


def test_a_vm_under_build_is_not_allowed(master):
    with orders.opened(master, "guest") as record:
        orders.begin(record, orders.KEYED)

        with pytest.raises(MasterError, match="guest is a VM .keyed.; a VM is never a hypervisor"):
            allowing.allow(master, ["guest"])


# Shutting out.


@pytest.fixture
def secured(master):
    """Three allowed hosts with certificates."""
    allowing.allow(master, HOSTS)
    for host in HOSTS:
        ask(certificates.open_authorities(master), host, now=now())
    return master


def states(opts):
    """Return ``{host: states of its certificates}``."""
    rows = certificates.list_certificates(certificates.open_authorities(opts), now())
    return {host: {r["state"] for r in rows if r["host"] == host} for host in HOSTS}


@pytest.mark.parametrize("target", ["hyper3", "HYPER3", "*3"])
def test_certificates_of_a_host_that_is_shut_out_are_revoked_and_the_others_are_notified(
    secured, notices, target
):
    answer = allowing.disallow(secured, [target], now())

    assert answer["disallowed"] == ["hyper3"] and len(answer["revoked"]) == 1
    assert answer["told"] == {"hyper1": "in place", "hyper2": "in place"}
    assert states(secured) == {"hyper1": {"good"}, "hyper2": {"good"}, "hyper3": {"revoked"}}
    assert allowed_hosts(secured) == ["hyper1", "hyper2"]


def test_shutting_out_wins_over_the_configuration_until_it_is_undone(secured, notices):
    secured["virt"] = {"hypervisors": ["hyper*"]}
    allowing.disallow(secured, ["hyper3"], now())
    assert allowed_hosts(secured) == ["hyper1", "hyper2"]

    allowing.allow(secured, ["hyper3"])

    assert allowed_hosts(secured) == HOSTS


def test_a_host_that_missed_a_revocation_is_notified_by_the_next_run(secured, notices):
    notices.silent = "hyper2"
    with pytest.raises(MasterError, match="hyper2: no answer .* virt.disallow hyper3 again"):
        allowing.disallow(secured, ["hyper3"], now())
    assert allowed_hosts(secured) == ["hyper1", "hyper2"]
    notices.silent = None

    answer = allowing.disallow(secured, ["hyper3"], now())

    assert answer["revoked"] == [] and set(answer["told"]) == {"hyper1", "hyper2"}


def test_the_last_host_can_be_shut_out(secured, notices):
    allowing.disallow(secured, ["hyper*"], now())

    assert notices.hosts == [[]] and allowed_hosts(secured) == []


def test_a_host_without_certificates_is_shut_out_without_notifying_others(master, notices):
    allowing.allow(master, HOSTS)

    assert allowing.disallow(master, ["hyper1"], now()) == {
        "disallowed": ["hyper1"],
        "revoked": [],
        "told": {},
    }
    assert notices.hosts == []


def test_a_host_whose_key_is_gone_can_be_shut_out(secured, notices):
    compat.KeyStore(secured).discard("hyper3")

    answer = allowing.disallow(secured, ["hyper3"], now())

    assert len(answer["revoked"]) == 1 and states(secured)["hyper3"] == {"revoked"}


SLIPS = [(["hyper9"], "'hyper9' is not"), (["x*"], "'x[*]' is"), ([], "say"), ([[]], "say which")]


@pytest.mark.parametrize(("targets", "reason"), SLIPS)
def test_a_wrong_id_shuts_no_host_out(secured, notices, targets, reason):
    with pytest.raises(BadArgument, match=reason):
        allowing.disallow(secured, targets, now())

    assert allowed_hosts(secured) == HOSTS


def test_a_host_is_shut_out_despite_a_wrong_configuration(secured, notices):
    secured["virt"] = {"hypervisors": "G@a:b"}

    reason = "not every other host was updated: option virt:hyper"
    with pytest.raises(MasterError, match=reason) as caught:
        allowing.disallow(secured, ["hyper3"], now())

    answer = caught.value.table
    assert answer["disallowed"] == ["hyper3"] and len(answer["revoked"]) == 1
    assert states(secured)["hyper3"] == {"revoked"}
    assert membership.read_listed(secured).is_disallowed("hyper3")


# Orders.


def test_only_hypervisors_are_asked_and_get_orders(monkeypatch, master):
    monkeypatch.setattr(Cloud, "client", lambda _self: pytest.fail("somebody was asked"))
    cloud = Cloud.of(master)

    replies = minions.ask(cloud, ["guest", "hyper1"], "virt.host_info")
    order_reply = minions.order(cloud, "guest", "virt.purge", ["web1"], {})

    is_missing = {minion: reply.is_missing for minion, reply in replies.items()}
    assert is_missing == {"guest": True, "hyper1": True}
    assert order_reply.is_missing and "salt-run virt.allow guest" in order_reply.error
    assert "salt-run virt.allow hyper1" in replies["hyper1"].error


def test_a_host_that_is_shut_out_gets_no_more_orders(monkeypatch, master):
    monkeypatch.setattr(Cloud, "client", lambda _self: pytest.fail("somebody was asked"))
    allowing.allow(master, HOSTS)
    cloud = Cloud.of(master)
    membership.disallow(master, ["hyper1"])

    assert "was shut out" in minions.order(cloud, "hyper1", "virt.purge", ["web1"], {}).error


# VMs that a glob has come to match.


@pytest.fixture
def hosts_by_glob(monkeypatch, master):
    """A master with the hypervisors ``hyper*``; a test sets the VMs of each host."""
    master["virt"] = {"hypervisors": "hyper*"}
    fake_hosts = SimpleNamespace(opts=master, vms={}, silent=set(), asked=[])

    def reply(host):
        if host in fake_hosts.silent:
            return minions.Reply(minion=host, is_missing=True)
        return minions.Reply(
            minion=host, value=dict.fromkeys(fake_hosts.vms.get(host, ()), "running")
        )

    def answer(_cloud, hosts, fun, *_args, **_options):
        fake_hosts.asked.append((fun, sorted(hosts)))
        return {host: reply(host) for host in hosts}

    monkeypatch.setattr(minions, "ask", answer)
    return fake_hosts


def test_a_glob_that_has_come_to_match_a_vm_is_refused_by_the_next_command(hosts_by_glob):
    minionkeys.accept(hosts_by_glob.opts, "hyper9", keypairs.named("a guest")[0])
    lastseen.record_move(hosts_by_glob.opts, "hyper9", "hyper1")
    hosts_by_glob.vms["hyper1"] = ["hyper9"]

    with pytest.raises(MasterError, match="hyper9 is a VM on hyper1, and virt:hypervisors match"):
        inventory.all_hosts(Cloud.of(hosts_by_glob.opts))
    assert hosts_by_glob.asked == [("virt.vm_state", ["hyper1"])]

    allowing.disallow(hosts_by_glob.opts, ["hyper9"], now())
    assert inventory.all_hosts(Cloud.of(hosts_by_glob.opts)) == HOSTS


def test_a_vm_not_seen_before_is_found_by_the_first_survey(hosts_by_glob):
    cloud = Cloud.of(hosts_by_glob.opts)
    hosts_by_glob.vms["hyper2"] = ["web1", "HYPER9"]

    with pytest.raises(MasterError, match="HYPER9 is a VM on hyper2"):
        inventory.survey(cloud, inventory.all_hosts(cloud), "virt.vm_state")


def test_a_host_that_is_silent_keeps_the_name_of_its_vm(hosts_by_glob):
    lastseen.record_move(hosts_by_glob.opts, "hyper9", "hyper1")
    hosts_by_glob.silent.add("hyper1")

    with pytest.raises(MasterError, match="hyper9 is a VM on hyper1"):
        inventory.all_hosts(Cloud.of(hosts_by_glob.opts))


def test_a_removed_vm_does_not_block_its_name(hosts_by_glob):
    lastseen.record_move(hosts_by_glob.opts, "hyper9", "hyper1")
    minionkeys.accept(hosts_by_glob.opts, "hyper9", keypairs.named("a guest")[0])

    assert inventory.all_hosts(Cloud.of(hosts_by_glob.opts)) == [*HOSTS, "hyper9"]
    assert lastseen.read_all(hosts_by_glob.opts) == {}
