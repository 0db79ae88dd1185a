"""Deployments that were cut off, on hosts that are folders: what the next command does."""

import fleetkit
import pytest
from fleetkit import is_tidy, key, left
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.core.crypto import keypair
from saltvirt.core.errors import BadArgument, NameTaken, NoHostFits, NoSuchVm, NotTakenBack
from saltvirt.core.salt import compat
from saltvirt.migration.master import migrate
from saltvirt.vm.create.master import deploy, hostbuild


def test_a_deployment_leaves_a_vm_and_its_key_and_no_order(cloud):
    assert cloud.init()["host"] == "hyper1"

    assert cloud.hosts.where("web") == ["hyper1"] and key(cloud) and is_tidy(cloud)
    assert cloud.hosts.sent[0][2]["pub_key"].strip() == key(cloud)
    assert cloud.purge() == {"hyper1": {"web": "purged"}}
    assert cloud.hosts.where("web") == [] and key(cloud) is None and is_tidy(cloud)


BEFORE = {
    "order.before-placing": None,
    "order.placing": "placing",
    "order.before-keyed": "placing",
    "order.keyed": "keyed",
    "order.before-ordered": "keyed",
    "order.ordered": "ordered",
}


@pytest.mark.parametrize(("point", "phase"), BEFORE.items(), ids=BEFORE)
def test_a_deployment_killed_before_its_vm_was_made_is_taken_back(cloud, kill_at, point, phase):
    kill_at(point, cloud.init)
    before = key(cloud)
    assert left(cloud) == phase and cloud.hosts.where("web") == []

    assert cloud.init()["host"] == "hyper1"

    assert key(cloud) not in (None, before) and is_tidy(cloud)


AFTER = {"order.before-built": "ordered", "order.built": "built", "order.end": None}


@pytest.mark.parametrize(("point", "phase"), AFTER.items(), ids=AFTER)
def test_a_deployment_killed_after_its_vm_was_made_costs_it_no_key(cloud, kill_at, point, phase):
    kill_at(point, cloud.init)
    before = key(cloud)
    assert left(cloud) == phase and before

    with pytest.raises(NameTaken, match=r"'web' is on hyper1 already \(running\)"):
        cloud.init()

    assert key(cloud) == before and is_tidy(cloud)
    assert cloud.purge() == {"hyper1": {"web": "purged"}} and key(cloud) is None


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_a_purge_settles_a_killed_deployment_too(cloud, kill_at, point):
    kill_at(point, cloud.init)

    if point in BEFORE:
        with pytest.raises(
            NoSuchVm, match="'web' on any of .*; salt-run virt.list shows all"
        ) as caught:
            cloud.purge()
        is_said = "what an interrupted virt.init had begun was taken back" in str(caught.value)
        assert is_said is (point != "order.before-placing")
    else:
        assert cloud.purge() == {"hyper1": {"web": "purged"}}

    assert key(cloud) is None and is_tidy(cloud) and cloud.hosts.where("web") == []


def test_a_key_that_is_not_the_orders_is_not_taken_back(cloud, kill_at):
    kill_at("order.keyed", cloud.init)
    other = keypair.generate()[0]
    minionkeys.accept(cloud.opts, "web", other)

    with pytest.raises(NameTaken, match="a minion called 'web' is accepted"):
        cloud.init()

    assert key(cloud) == other.strip() and is_tidy(cloud)


def test_the_key_of_a_vm_that_may_be_on_a_silent_host_stays_until_that_answers(cloud, kill_at):
    kill_at("order.ordered", cloud.init, host="hyper2")
    before = key(cloud)
    cloud.hosts.silence("hyper2")

    for command in (cloud.init, cloud.purge):
        with pytest.raises(NameTaken, match=r"it may be on hyper2 \(does not answer\)") as caught:
            command()
        assert "an interrupted virt.init of VM 'web' cannot be finished or taken" in str(
            caught.value
        )
        assert "run virt.init again, or salt-run virt.purge web;" in str(caught.value)
    assert key(cloud) == before and left(cloud) == "ordered"

    cloud.hosts.put("hyper2", "web")
    cloud.hosts.silence("hyper2", False)
    with pytest.raises(NameTaken, match="'web' is on hyper2 already"):
        cloud.init()
    assert key(cloud) == before and is_tidy(cloud)


def test_a_vm_of_a_killed_deployment_that_went_to_a_silent_host_keeps_its_key(cloud, kill_at):
    kill_at("order.before-built", cloud.init)
    before = key(cloud)
    cloud.hosts.remove("hyper1", "web")
    cloud.hosts.put("hyper3", "web")
    lastseen.record_move(cloud.opts, "web", "hyper3")
    cloud.hosts.silence("hyper3")

    with pytest.raises(NameTaken, match="hyper3"):
        cloud.init()
    assert key(cloud) == before


def test_force_overrules_a_host_that_is_gone_for_good(cloud, kill_at):
    kill_at("order.ordered", cloud.init, host="hyper2")
    before = key(cloud)
    cloud.hosts.silence("hyper2")

    assert cloud.init(force=True)["host"] == "hyper1"
    assert key(cloud) != before and is_tidy(cloud)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        ({"state": None, "building": True}, "is being built on hyper1, or is on its way there: w"),
        ({"state": "running", "building": True}, "that was interrupted: salt-run virt.settle web$"),
    ],
)
def test_an_order_stays_while_a_host_has_a_part_of_the_vm(cloud, kill_at, one, words):
    kill_at("order.ordered", cloud.init)
    before = key(cloud)
    cloud.hosts.put("hyper1", "web", **one)

    for command in (cloud.init, lambda: migrate.migrate(cloud.master, "web", None, {})):
        with pytest.raises(NameTaken, match=words):
            command()

    assert left(cloud) == "ordered" and key(cloud) == before


def test_a_name_of_which_a_host_has_a_record_that_cannot_be_read_is_taken(cloud):
    why = "the record /a/arrival/web.json cannot be read (x); move it away"
    cloud.hosts.put("hyper2", "web", None, unfinished=True, unreadable=why)

    for command in (cloud.init, cloud.dry_run, lambda: cloud.init(force=True)):
        with pytest.raises(NameTaken, match="what hyper2 has of VM 'web' is not known: ") as caught:
            command()
        assert str(caught.value).endswith(why)

    assert key(cloud) is None and is_tidy(cloud) and cloud.hosts.sent == []


def test_what_a_host_had_defined_is_complete_and_keeps_its_key(cloud, kill_at):
    kill_at("order.ordered", cloud.init)
    before = key(cloud)
    cloud.hosts.put("hyper1", "web", "shutdown", unfinished=True)

    with pytest.raises(NameTaken, match=r"is on hyper1 already \(shutdown\)"):
        cloud.init()

    assert left(cloud) is None and key(cloud) == before


@pytest.mark.parametrize("command", ["init", "purge"])
def test_what_a_host_had_not_defined_yet_needs_no_key(cloud, kill_at, command):
    kill_at("order.ordered", cloud.init)
    before = key(cloud)
    cloud.hosts.put("hyper1", "web", None, unfinished=True)

    done = getattr(cloud, command)()

    assert key(cloud) != before and is_tidy(cloud)
    if command == "init":
        assert done["host"] == "hyper1" and key(cloud)
    else:
        assert done == {"hyper1": {"web": "purged"}} and key(cloud) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_deployment_that_its_host_gave_up_is_taken_back(cloud, error):
    def build(_host, _name, *_args, **_kwarg):
        raise error

    cloud.hosts.does["virt.init"] = build

    with pytest.raises(error):
        cloud.init()
    assert key(cloud) is None and is_tidy(cloud)


@pytest.mark.parametrize("fate", ["complete", "building", "silent"])
def test_an_interrupted_deployment_that_its_host_may_finish_is_not_taken_back(cloud, fate):
    def build(host, name, *_args, **_kwarg):
        cloud.hosts.put(host, name, building=fate == "building")
        if fate == "silent":
            cloud.hosts.silence(host)
        raise KeyboardInterrupt

    cloud.hosts.does["virt.init"] = build

    with pytest.raises(
        hostbuild.HostCommandFailed, match="interrupted, but VM 'web' may still be "
    ) as caught:
        cloud.init()
    assert "on hyper1; when that answers, run virt.init again" in str(caught.value)
    assert key(cloud) and left(cloud) == "ordered"


def test_a_host_that_falls_silent_while_it_builds_may_have_the_vm(cloud):
    def build(host, name, *_args, **_kwarg):
        cloud.hosts.put(host, name)
        cloud.hosts.silence(host)

    cloud.hosts.does["virt.init"] = build

    with pytest.raises(
        hostbuild.HostUnresponsive, match="hyper1 does not answer, while it built 'web'; "
    ):
        cloud.init()

    before = key(cloud)
    assert before and left(cloud) == "ordered"
    cloud.hosts.silence("hyper1", False)
    with pytest.raises(NameTaken, match="'web' is on hyper1 already"):
        cloud.init()
    assert key(cloud) == before


def test_a_host_that_fails_is_taken_at_its_word(cloud):
    def build(host, *_args, **_kwarg):
        cloud.hosts.silence("hyper2")
        raise ValueError(f"no space left on {host}")

    cloud.hosts.does["virt.init"] = build

    with pytest.raises(hostbuild.HostCommandFailed, match="hyper1: no space left on hyper1"):
        cloud.init()
    assert key(cloud) is None and is_tidy(cloud)


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_host_that_cannot_take_a_build_back_may_have_the_vm(cloud, is_silent):
    def build(host, name, *_args, **_kwarg):
        cloud.hosts.put(host, name, unfinished=True)
        raise NotTakenBack("libvirt does not answer; and not all of it can be removed")

    def ask(*args, **options):
        if is_silent and cloud.hosts.where("web"):
            return {"hyper1": minions.Reply(minion="hyper1", error="libvirt does not answer")}
        return cloud.hosts.ask(*args, **options)

    cloud.hosts.does["virt.init"] = build
    with (
        pytest.MonkeyPatch.context() as dead,
        pytest.raises(
            hostbuild.HostCommandFailed,
            match="hyper1: libvirt does not answer; .* 'web' may still be .*, or be "
            "left, on hyper1; when that answers, run virt.init again, .* salt-run virt.purge web",
        ),
    ):
        dead.setattr(minions, "ask", ask)
        cloud.init()
    before = key(cloud)
    assert before and left(cloud) == "ordered"

    with pytest.raises(NameTaken, match="'web' is on hyper1 already"):
        cloud.init()
    assert key(cloud) == before and is_tidy(cloud)
    assert cloud.purge() == {"hyper1": {"web": "purged"}} and key(cloud) is None


def test_a_host_that_has_not_defined_what_it_cannot_remove_needs_no_key(cloud):
    def build(host, name, *_args, **_kwarg):
        cloud.hosts.put(host, name, None, unfinished=True)
        raise NotTakenBack("no space left; and not all of it can be removed")

    cloud.hosts.does["virt.init"] = build

    with pytest.raises(hostbuild.HostCommandFailed, match="hyper1: no space left; .* be removed$"):
        cloud.init()
    assert key(cloud) is None and is_tidy(cloud)


def test_an_undo_that_fails_leaves_the_order_to_the_next_command(cloud, monkeypatch):
    def build(*_args, **_kwarg):
        raise ValueError("no space left")

    def fails(*_args):
        raise OSError("the disk of the master is full")

    cloud.hosts.does["virt.init"] = build
    with monkeypatch.context() as patch, pytest.raises(hostbuild.HostCommandFailed):
        patch.setattr(minionkeys, "discard", fails)
        cloud.init()
    assert key(cloud) and left(cloud) == "keyed"

    cloud.hosts.does["virt.init"] = cloud.hosts.build
    assert cloud.init()["host"] == "hyper1" and is_tidy(cloud)


def test_an_image_of_a_disk_profile_gives_the_vm_a_key(cloud):
    cloud.hosts.profiles["default"]["has_image"] = True

    cloud.init(image=None)

    assert cloud.hosts.sent[0][2]["pub_key"].strip() == key(cloud)


def test_an_unseeded_vm_has_no_key_and_its_order_is_settled_too(cloud, kill_at):
    kill_at("order.before-built", cloud.init, image=None)

    with pytest.raises(NameTaken, match="'web' is on hyper1 already"):
        cloud.init(image=None)
    assert key(cloud) is None and is_tidy(cloud)
    kill_at("order.ordered", cloud.init, "db", image=None)
    assert cloud.init("db", image=None)["host"] == "hyper1"


def test_no_host_that_fits_leaves_no_order(cloud):
    with pytest.raises(NoHostFits):
        deploy.deploy(cloud.master, fleetkit.request(mem=10**6))
    assert is_tidy(cloud) and compat.KeyStore(cloud.opts).read("web") == (None, None)


@pytest.mark.parametrize("keyword", ["pub_key", "priv_key"])
def test_a_dry_run_refuses_a_key_as_the_deployment_would(cloud, keyword):
    with pytest.raises(BadArgument, match=f"^{keyword}: the runner makes the keys itself"):
        cloud.dry_run(**{keyword: "/srv/minion.pem"})


ANOTHERS = {"uuid": "6695eb01-f6a4-8304-79aa-97f2502e1001"}


@pytest.mark.parametrize("host", ["hyper1", "hyper2"])
@pytest.mark.parametrize("command", ["init", "purge", "migrate"])
def test_anothers_vm_of_that_name_is_not_taken_for_that_of_a_killed_deployment(
    cloud, kill_at, host, command
):
    kill_at("order.ordered", cloud.init, host="hyper1")
    assert key(cloud)
    cloud.hosts.put(host, "web", **ANOTHERS)

    if command == "purge":
        assert cloud.purge(delete_key=False) == {host: {"web": "purged"}}
    elif command == "init":
        with pytest.raises(NameTaken, match="taken back") as caught:
            cloud.init()
        assert f"VM 'web' is on {host} already (running)" in str(caught.value)
    else:
        with orders.opened(cloud.opts, "web") as order:
            migrate._settle(cloud.master, order)

    assert key(cloud) is None and is_tidy(cloud)


def test_the_vm_of_a_killed_deployment_is_known_wherever_it_has_gone(cloud, kill_at):
    kill_at("order.before-built", cloud.init)
    before = key(cloud)
    (vm,) = [cloud.hosts._vms("hyper1")["web"]]
    cloud.hosts.remove("hyper1", "web")
    cloud.hosts.put("hyper2", "web", **vm)

    with pytest.raises(NameTaken, match="the VM is complete and keeps its key"):
        cloud.init()

    assert key(cloud) == before and is_tidy(cloud)


def test_anothers_vm_does_not_end_an_order_whose_host_is_silent(cloud, kill_at):
    kill_at("order.ordered", cloud.init, host="hyper1")
    before = key(cloud)
    cloud.hosts.put("hyper2", "web", **ANOTHERS)
    cloud.hosts.silence("hyper1")

    with pytest.raises(NameTaken, match=r"it may be on hyper1 \(does not answer\)"):
        cloud.init()

    assert key(cloud) == before and left(cloud) == "ordered"
