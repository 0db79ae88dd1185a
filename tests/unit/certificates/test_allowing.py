"""One command says who is a hypervisor; whoever a guest is, or was, gets nothing by it."""

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
    """A master with three hosts and a guest, all of which say that they are hypervisors."""
    for one in [*HOSTS, "guest"]:
        minionkeys.accept(opts, one, keypairs.named("a guest")[0])
        asked(opts, one, {"virt_hypervisor": True})
    asked(opts, "stranger", {"virt_hypervisor": True})  # its key was deleted
    return opts


@pytest.fixture
def told(monkeypatch):
    """Which hosts were told of a revocation; a host that is silent is set."""
    out = SimpleNamespace(hosts=[], silent=None)

    def apply_keys(_cloud, hosts, **_options):
        out.hosts.append(list(hosts))
        if out.silent in hosts:
            raise MasterError(f"{out.silent}: no answer within 120 s")
        return dict.fromkeys(hosts, "in place")

    monkeypatch.setattr(certificates, "apply_keys", apply_keys)
    return out


def now():
    """Return the time, as the runner does."""
    return store.utc_now()


def allowed(opts):
    """Return which minions are hypervisors."""
    return inventory.allowed_hosts(Cloud.of(opts))


def test_a_master_that_nobody_configured_has_no_hypervisors(master):
    assert allowed(master) == []


def test_the_first_hour_costs_one_command_and_no_reading(master):
    with pytest.raises(MasterError) as refused:
        inventory.all_hosts(Cloud.of(master))

    line = str(refused.value)
    assert "guest, hyper1, hyper2 and hyper3 may be" in line and "\n" not in line
    command = "salt-run virt.allow guest hyper1 hyper2 hyper3"
    assert line.endswith(command)
    shown = refused.value.table["candidates"]
    assert set(shown) == {"guest", *HOSTS}
    assert shown["hyper1"]["fingerprint"] == compat.KeyStore(master).fingerprint("hyper1")
    allowing.allow(master, ["hyper1", "hyper2", "hyper3"])
    assert inventory.all_hosts(Cloud.of(master)) == HOSTS


def test_a_guest_is_named_as_one_and_left_out_of_the_command(master):
    lastseen.record_move(master, "guest", "hyper2")

    with pytest.raises(MasterError) as refused:
        inventory.all_hosts(Cloud.of(master))

    assert str(refused.value).endswith("salt-run virt.allow hyper1 hyper2 hyper3")
    assert refused.value.table["candidates"]["guest"]["vm_on"] == ["hyper2"]


def test_hosts_that_have_certificates_today_are_shown_and_allowed_with_one_command(opts):
    for one in ("old1", "old2", "over", "revoked"):
        minionkeys.accept(opts, one, keypairs.named("a guest")[0])
    place = certificates.open_authorities(opts)
    ask(place, "old1", now=now())
    ask(place, "old2", now=now())
    ask(place, "over", now=now() - timedelta(days=1000))
    ask(place, "revoked", now=now())
    certificates.revoke_hosts(opts, ["revoked"], now())

    shown = allowing.show_members(opts)

    assert {one: row["why"] for one, row in shown["candidates"].items()} == {
        "old1": "has certificates",
        "old2": "has certificates",
    }
    assert shown["allow_them"] == "salt-run virt.allow old1 old2"
    allowing.allow(opts, shown["allow_them"].split()[2:])
    assert allowed(opts) == ["old1", "old2"]


def test_with_nobody_to_show_the_line_says_whom_to_name(opts):
    with pytest.raises(MasterError, match="name yours: salt-run virt.allow HOST") as refused:
        inventory.all_hosts(Cloud.of(opts))

    assert refused.value.table == {}


def test_with_nobody_accepted_of_those_who_are_allowed_the_line_says_so(opts):
    opts["virt"] = {"hypervisors": "hyper1"}

    with pytest.raises(MasterError, match="no allowed hypervisor has an accepted key"):
        inventory.all_hosts(Cloud.of(opts))


def test_a_target_of_an_older_configuration_is_refused_with_who_it_meant(master):
    master["virt"] = {"hypervisors": "G@virt_hypervisor:True or hyper1"}
    lastseen.record_move(master, "guest", "hyper1")

    with pytest.raises(BadConfig) as refused:
        Cloud.of(master)

    assert "'G@virt_hypervisor:True' is what minions report about themselves" in str(refused.value)
    assert str(refused.value).endswith("run: salt-run virt.allow hyper1 hyper2 hyper3")
    assert set(refused.value.table["candidates"]) == {"guest", *HOSTS}
    allowing.allow(master, HOSTS)  # what it says can be done before the option is gone
    with pytest.raises(BadConfig, match="or take it out"):
        Cloud.of(master)


def test_who_is_a_hypervisor_is_shown_with_why(master):
    master["virt"] = {"hypervisors": ["hyper1", "hyper8", "rack*"]}
    allowing.allow(master, ["hyper2"])
    membership.disallow(master, ["hyper3"])

    shown = allowing.show_members(master)

    assert {one: row["by"] for one, row in shown["hypervisors"].items()} == {
        "hyper1": "virt:hypervisors: hyper1",
        "hyper2": "virt.allow",
    }
    assert (shown["disallowed"], shown["without_key"]) == (["hyper3"], ["hyper8"])
    assert set(shown["candidates"]) == {"guest"}
    assert shown["allow_them"] == "salt-run virt.allow guest"


@pytest.mark.parametrize(
    ("given", "ids"),
    [
        (["hyper1", "hyper2"], ["hyper1", "hyper2"]),
        (["hyper1,hyper2"], ["hyper1", "hyper2"]),
        (["hyper1,", "hyper2"], ["hyper1", "hyper2"]),  # hyper1, hyper2
        ([["hyper1"], "hyper3"], ["hyper1", "hyper3"]),
        (["hyper*", "hyper1"], HOSTS),
    ],
)
def test_hosts_are_allowed_by_ids_and_by_globs_that_match_now(master, given, ids):
    assert allowing.allow(master, given) == {"allowed": ids}
    for later in ("hyper4", "hyper5.p"):
        minionkeys.accept(master, later, keypairs.named("a guest")[0])

    assert allowed(master) == ids
    assert "hyper5.p" not in allowing.allow(master, ["hyper*"])["allowed"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["hyper9"], "no key of 'hyper9' is accepted; .* accept it: salt-key -a hyper9"),
        (["hyper1", "rack*"], "'rack[*]' matches none of the minions that are accepted"),
        ([7], "7 is not text; quote it, on a command line twice: \"'7'\""),
        ([""], "'' is not the id of a minion"),
        ([" ,"], "' ,' is not the id of a minion"),
        ([[]], "say which: salt-run virt.allow HOST"),
    ],
)
def test_who_cannot_be_meant_is_refused_and_nobody_is_allowed(master, given, why):
    with pytest.raises(BadArgument, match=why):
        allowing.allow(master, given)

    assert allowed(master) == []


def test_a_vm_is_never_allowed_even_beside_its_own_host(master):
    lastseen.record_move(master, "guest", "hyper1")

    with pytest.raises(MasterError, match="guest is a VM on hyper1; a VM is never a hypervisor"):
        allowing.allow(master, ["hyper*", "guest"])

    assert allowed(master) == []


def test_what_a_guest_said_when_it_was_asked_as_a_hypervisor_keeps_no_host_out(master):
    lastseen.record_move(master, "hyper1", "guest")

    assert allowing.allow(master, HOSTS) == {"allowed": HOSTS}


def test_a_vm_that_is_just_being_made_is_not_allowed(master):
    with orders.opened(master, "guest") as held:
        orders.begin(held, orders.KEYED)

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


@pytest.mark.parametrize("typed", ["hyper3", "HYPER3", "*3"])
def test_whoever_is_shut_out_is_revoked_and_the_others_are_told(secured, told, typed):
    done = allowing.disallow(secured, [typed], now())

    assert done["disallowed"] == ["hyper3"] and len(done["revoked"]) == 1
    assert done["told"] == {"hyper1": "in place", "hyper2": "in place"}
    assert states(secured) == {"hyper1": {"good"}, "hyper2": {"good"}, "hyper3": {"revoked"}}
    assert allowed(secured) == ["hyper1", "hyper2"]


def test_shutting_out_wins_over_the_configuration_until_it_is_undone(secured, told):
    secured["virt"] = {"hypervisors": ["hyper*"]}
    allowing.disallow(secured, ["hyper3"], now())
    assert allowed(secured) == ["hyper1", "hyper2"]

    allowing.allow(secured, ["hyper3"])

    assert allowed(secured) == HOSTS


def test_a_host_that_did_not_hear_of_it_is_told_by_the_next_run(secured, told):
    told.silent = "hyper2"
    with pytest.raises(MasterError, match="hyper2: no answer .* virt.disallow hyper3 again"):
        allowing.disallow(secured, ["hyper3"], now())
    assert allowed(secured) == ["hyper1", "hyper2"]
    told.silent = None

    done = allowing.disallow(secured, ["hyper3"], now())

    assert done["revoked"] == [] and set(done["told"]) == {"hyper1", "hyper2"}


def test_the_last_host_can_be_shut_out(secured, told):
    allowing.disallow(secured, ["hyper*"], now())

    assert told.hosts == [[]] and allowed(secured) == []


def test_who_has_no_certificates_is_shut_out_without_telling_anybody(master, told):
    allowing.allow(master, HOSTS)

    assert allowing.disallow(master, ["hyper1"], now()) == {
        "disallowed": ["hyper1"],
        "revoked": [],
        "told": {},
    }
    assert told.hosts == []


def test_a_host_whose_key_is_gone_can_be_shut_out(secured, told):
    compat.KeyStore(secured).discard("hyper3")

    done = allowing.disallow(secured, ["hyper3"], now())

    assert len(done["revoked"]) == 1 and states(secured)["hyper3"] == {"revoked"}


SLIPS = [(["hyper9"], "'hyper9' is not"), (["x*"], "'x[*]' is"), ([], "say"), ([[]], "say which")]


@pytest.mark.parametrize(("given", "why"), SLIPS)
def test_nobody_is_shut_out_by_a_slip(secured, told, given, why):
    with pytest.raises(BadArgument, match=why):
        allowing.disallow(secured, given, now())

    assert allowed(secured) == HOSTS


def test_shutting_out_does_not_wait_for_a_configuration_that_cannot_be_used(secured, told):
    secured["virt"] = {"hypervisors": "G@a:b"}

    why = "not every other host was updated: option virt:hyper"
    with pytest.raises(MasterError, match=why) as caught:
        allowing.disallow(secured, ["hyper3"], now())

    said = caught.value.table
    assert said["disallowed"] == ["hyper3"] and len(said["revoked"]) == 1
    assert states(secured)["hyper3"] == {"revoked"}
    assert membership.read_listed(secured).is_disallowed("hyper3")


# Orders.


def test_nobody_but_hypervisors_is_asked_or_gets_orders(monkeypatch, master):
    monkeypatch.setattr(Cloud, "client", lambda _self: pytest.fail("somebody was asked"))
    cloud = Cloud.of(master)

    asked = minions.ask(cloud, ["guest", "hyper1"], "virt.host_info")
    ordered = minions.order(cloud, "guest", "virt.purge", ["web1"], {})

    is_missing = {minion: reply.is_missing for minion, reply in asked.items()}
    assert is_missing == {"guest": True, "hyper1": True}
    assert ordered.is_missing and "salt-run virt.allow guest" in ordered.error
    assert "salt-run virt.allow hyper1" in asked["hyper1"].error


def test_who_is_shut_out_gets_no_more_orders_of_what_is_under_way(monkeypatch, master):
    monkeypatch.setattr(Cloud, "client", lambda _self: pytest.fail("somebody was asked"))
    allowing.allow(master, HOSTS)
    cloud = Cloud.of(master)
    membership.disallow(master, ["hyper1"])

    assert "was shut out" in minions.order(cloud, "hyper1", "virt.purge", ["web1"], {}).error


# VMs that a glob has come to match.


@pytest.fixture
def globbed(monkeypatch, master):
    """A master whose hypervisors are ``hyper*``; what hosts have is set."""
    master["virt"] = {"hypervisors": "hyper*"}
    out = SimpleNamespace(opts=master, vms={}, silent=set(), asked=[])

    def reply(host):
        if host in out.silent:
            return minions.Reply(minion=host, is_missing=True)
        return minions.Reply(minion=host, value=dict.fromkeys(out.vms.get(host, ()), "running"))

    def answer(_cloud, hosts, fun, *_args, **_options):
        out.asked.append((fun, sorted(hosts)))
        return {host: reply(host) for host in hosts}

    monkeypatch.setattr(minions, "ask", answer)
    return out


def test_a_glob_that_has_come_to_match_a_vm_is_refused_by_the_next_command(globbed):
    minionkeys.accept(globbed.opts, "hyper9", keypairs.named("a guest")[0])
    lastseen.record_move(globbed.opts, "hyper9", "hyper1")
    globbed.vms["hyper1"] = ["hyper9"]

    with pytest.raises(MasterError, match="hyper9 is a VM on hyper1, and virt:hypervisors match"):
        inventory.all_hosts(Cloud.of(globbed.opts))
    assert globbed.asked == [("virt.vm_state", ["hyper1"])]

    allowing.disallow(globbed.opts, ["hyper9"], now())
    assert inventory.all_hosts(Cloud.of(globbed.opts)) == HOSTS


def test_a_vm_that_nobody_has_seen_yet_is_met_by_the_first_look(globbed):
    cloud = Cloud.of(globbed.opts)
    globbed.vms["hyper2"] = ["web1", "HYPER9"]

    with pytest.raises(MasterError, match="HYPER9 is a VM on hyper2"):
        inventory.survey(cloud, inventory.all_hosts(cloud), "virt.vm_state")


def test_a_host_that_is_silent_keeps_the_name_of_its_vm(globbed):
    lastseen.record_move(globbed.opts, "hyper9", "hyper1")
    globbed.silent.add("hyper1")

    with pytest.raises(MasterError, match="hyper9 is a VM on hyper1"):
        inventory.all_hosts(Cloud.of(globbed.opts))


def test_a_vm_that_is_not_there_any_more_is_in_nobodys_way(globbed):
    lastseen.record_move(globbed.opts, "hyper9", "hyper1")
    minionkeys.accept(globbed.opts, "hyper9", keypairs.named("a guest")[0])

    assert inventory.all_hosts(Cloud.of(globbed.opts)) == [*HOSTS, "hyper9"]
    assert lastseen.read_all(globbed.opts) == {}
