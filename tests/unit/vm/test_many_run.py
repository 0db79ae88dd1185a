"""Many VMs at once: one look, one plan, builds side by side, all or nothing, again and again."""

import re
import threading
import time

import fleetkit
import pytest
from fleetkit import is_tidy, key
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.inventory import inventory
from saltvirt.core.errors import BadArgument, NameTaken, ReservationRefused, VirtError
from saltvirt.core.journal import records
from saltvirt.vm.create.master import deploy
from saltvirt.vm.create.master.many import manyrequest, planning, run
from saltvirt.vm.create.master.many.manyrequest import Call, NotAllBuilt

IMAGE = "salt://a.qcow2"
NIC = {"name": "eth0", "source": "br0", "mac": "52:00:00:00:00:01"}


def call(count=6, pattern="web{}", *, vms=None, per_host=2, whole=False, **terms):
    """Return a call for some VMs of one CPU and one MiB."""
    usual = {"cpu": 1, "mem": 1, "image": IMAGE}
    if vms is None:
        wanted = [{**usual, "name": name} for name in manyrequest.number_names(pattern, count)]
    else:
        wanted = manyrequest.parse_list(vms, usual)
    requests = manyrequest.parse_requests(wanted, fleetkit.terms(**terms))
    return Call(requests=requests, per_host=per_host, max_parallel=8, all_or_nothing=whole)


def built(cloud, **given):
    """Deploy some VMs."""
    return run.deploy_many(cloud.master, call(**given))


def failing(cloud, *names, error="no space left"):
    """Have the hosts fail to build some VMs."""
    usual = cloud.hosts.build

    def build(host, name, *args, **kwargs):
        if name in names:
            raise VirtError(error)
        usual(host, name, *args, **kwargs)

    cloud.hosts.does["virt.init"] = build
    return usual


def refusal(name):
    """Return the error of a host without room."""
    return ReservationRefused(name, ["no room"])


def asked_for(cloud, monkeypatch):
    """Return a list that gets ``(function, how many hosts)`` of each survey."""
    questions, usual = [], inventory.survey

    def survey(cloud_, targets, fun, *args, **kwargs):
        questions.append((fun, len(set(targets))))
        return usual(cloud_, targets, fun, *args, **kwargs)

    monkeypatch.setattr(inventory, "survey", survey)
    return questions


def test_all_are_built_by_one_survey_each_once_each_with_its_key(cloud, monkeypatch):
    questions = asked_for(cloud, monkeypatch)

    done = built(cloud)

    names = [f"web{n}" for n in range(1, 7)]
    assert done == {"built": done["built"], "exists": {}, "failed": {}}
    assert sorted(done["built"]) == names
    assert all(cloud.hosts.where(name) == [done["built"][name]] for name in names)
    assert sorted(done["built"].values()) == ["hyper1"] * 2 + ["hyper2"] * 2 + ["hyper3"] * 2
    assert all(key(cloud, name) for name in names)
    assert questions == [("virt.placement_facts", 3)]
    assert is_tidy(cloud)


def test_the_plan_is_where_they_go_and_a_dry_run_makes_nothing(cloud):
    shown = run.dry_run(cloud.master, call())

    assert cloud.hosts.sent == []
    assert is_tidy(cloud)
    assert built(cloud)["built"] == shown["plan"]


def test_called_again_it_builds_what_is_missing_and_nothing_twice(cloud):
    usual = failing(cloud, "web2", "web5")
    with pytest.raises(NotAllBuilt, match=r"2 of 6 VMs not built: web2, web5 \(web2: .*no space"):
        built(cloud)
    assert is_tidy(cloud)
    assert key(cloud, "web2") is None
    cloud.hosts.does["virt.init"] = usual
    cloud.hosts.sent.clear()

    done = built(cloud)

    assert sorted(done["built"]) == ["web2", "web5"]
    assert sorted(done["exists"]) == ["web1", "web3", "web4", "web6"]
    assert [fun for _host, fun, _kwarg in cloud.hosts.sent] == ["virt.init"] * 2
    assert built(cloud)["built"] == {}


def test_all_or_nothing_purges_again_what_it_has_built_and_no_more(cloud):
    built(cloud, count=2)
    failing(cloud, "web5")

    with pytest.raises(NotAllBuilt, match="all or nothing: .* purged again") as caught:
        built(cloud, whole=True)

    table = caught.value.table
    assert table["built"] == {}
    assert sorted(table["exists"]) == ["web1", "web2"]
    there = {name for name in (f"web{n}" for n in range(1, 7)) if cloud.hosts.where(name)}
    assert there == {"web1", "web2"}
    assert [key(cloud, name) is not None for name in ("web1", "web3", "web5")] == [True, 0, 0]
    assert set(table["purged"]) | set(table["failed"]) == {"web3", "web4", "web5", "web6"}
    assert "left" not in table
    assert is_tidy(cloud)


def test_what_cannot_be_purged_again_is_named(cloud):
    failing(cloud, "web3")

    def remove(*_args, **_kwargs):
        raise VirtError("its disk is open")

    cloud.hosts.does["virt.purge"] = remove
    with pytest.raises(
        NotAllBuilt, match=r"purged again \(web\d: hyper\d: its disk is open\); salt-run virt.purge"
    ) as caught:
        built(cloud, count=3, whole=True)

    assert "its disk is open" in next(iter(caught.value.table["left"].values()))


def test_all_or_nothing_leaves_a_vm_that_somebody_has_made_elsewhere_meanwhile(cloud):
    usual, there, is_built = cloud.hosts.build, [], threading.Event()

    def build(host, name, *args, **kwargs):
        if name != "web1":
            usual(host, name, *args, **kwargs)
            is_built.set()
            return
        assert is_built.wait(30)
        # The host falls silent before it has made anything; somebody takes another one by hand.
        cloud.hosts.silence(host)
        there.append(next(one for one in cloud.hosts.names() if one != host))
        cloud.hosts.put(there[0], name, uuid="of another")

    cloud.hosts.does["virt.init"] = build
    with pytest.raises(NotAllBuilt, match="web1 could not be purged again") as caught:
        built(cloud, count=2, whole=True)

    assert cloud.hosts.where("web1") == there
    assert there[0] in caught.value.table["left"]["web1"]
    assert list(caught.value.table["purged"]) == ["web2"]


@pytest.mark.parametrize("is_heard", [True, False])
def test_all_or_nothing_leaves_another_vm_that_the_same_host_was_given_meanwhile(cloud, is_heard):
    usual, there, is_done = cloud.hosts.build, {}, threading.Event()

    def build(host, name, *args, **kwargs):
        if name == "web1":
            there[name] = host
            usual(host, name, *args, **kwargs)
            if not is_heard:
                cloud.hosts.silence(host)
            return
        # What web1's build has come to is known: somebody removes it, and makes another by hand.
        assert is_done.wait(10)
        if not is_heard:
            cloud.hosts.silence(there["web1"], is_silent=False)
        cloud.hosts.put(there["web1"], "web1", uuid="of another")
        raise VirtError("no space left")

    def progress(stage, **_figures):
        if stage == "Done":
            is_done.set()

    cloud.hosts.does["virt.init"] = build
    master = cloud.master
    cloud.master = planning.Cloud(opts=master.opts, settings=master.settings, progress=progress)
    with pytest.raises(NotAllBuilt, match="web1 could not be purged again") as caught:
        built(cloud, count=2, whole=True)

    assert cloud.hosts.where("web1") == [there["web1"]]
    assert list(caught.value.table["left"]) == ["web1"]
    assert "purged" not in caught.value.table


def test_a_host_that_refuses_is_followed_by_the_next_best(cloud):
    usual = cloud.hosts.build

    def build(host, name, *args, **kwargs):
        if host == "hyper2":
            raise refusal(name)
        usual(host, name, *args, **kwargs)

    cloud.hosts.does["virt.init"] = build

    done = built(cloud)

    assert set(done["built"].values()) == {"hyper1", "hyper3"}
    assert len(done["built"]) == 6
    assert is_tidy(cloud)


def test_if_all_refuse_each_reason_is_in_the_line(cloud):
    def build(_host, name, *_args, **_kwargs):
        raise refusal(name)

    cloud.hosts.does["virt.init"] = build

    with pytest.raises(NotAllBuilt, match=r"no host fits: .*no room \(hyper1, hyper2, hyper3\)"):
        built(cloud, count=1)
    assert is_tidy(cloud)


def test_a_name_with_another_size_ends_it_before_anything_is_built(cloud):
    built(cloud, count=1)
    cloud.hosts.sent.clear()

    with pytest.raises(NameTaken, match="'web1' is on hyper. with 1 CPUs and 1 MiB"):
        built(cloud, vms=["web2", {"name": "web1", "mem": 2}])

    assert cloud.hosts.sent == []
    assert is_tidy(cloud)


def test_a_name_that_a_minion_has_ends_it_before_anything_is_built(cloud):
    minionkeys.accept(cloud.opts, "web2", "a key")

    with pytest.raises(NameTaken, match="a minion called 'web2' is accepted"):
        built(cloud)

    assert cloud.hosts.sent == []


def test_a_name_that_another_command_is_at_ends_it(cloud, monkeypatch):
    monkeypatch.setattr(orders, "_END_S", 0)
    with (
        orders.opened(cloud.opts, "web3"),
        pytest.raises(NameTaken, match="'web3' is being worked on by another"),
    ):
        built(cloud)
    assert cloud.hosts.sent == []


def test_a_name_that_a_silent_host_had_is_not_built_and_the_others_are(cloud):
    host = built(cloud, count=1)["built"]["web1"]
    cloud.hosts.silence(host)

    with pytest.raises(NotAllBuilt, match=f"web1: VM 'web1' may be on {host}") as caught:
        built(cloud, count=3)

    assert sorted(caught.value.table["built"]) == ["web2", "web3"]
    with pytest.raises(NotAllBuilt, match="all or nothing: nothing was built"):
        built(cloud, count=4, whole=True)
    assert cloud.hosts.where("web4") == []


def test_what_an_interrupted_init_left_is_settled(cloud, kill_at):
    kill_at("order.ordered", cloud.init, "web2")
    assert key(cloud, "web2")

    done = built(cloud, count=3)

    assert len(done["built"]) == 3
    assert is_tidy(cloud)


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_when_it_is_called_again(cloud, kill_at):
    kill_at("order.built", built, cloud)

    done = built(cloud)

    names = {f"web{n}" for n in range(1, 7)}
    assert {*done["built"], *done["exists"]} == names
    assert all(len(cloud.hosts.where(name)) == 1 and key(cloud, name) for name in names)
    # Killed while it wrote, it may leave a part of a file, but no record.
    assert records.read_records(orders.folder(cloud.opts), "order") == []


def test_where_one_has_no_place_the_others_are_built_and_all_or_nothing_builds_none(cloud):
    large = {"name": "big", "mem": 10**6}
    with pytest.raises(NotAllBuilt, match="1 of 3 VMs not built: big .big: no host fits: "):
        built(cloud, vms=["a", large, "b"], whole=True)
    assert cloud.hosts.sent == []
    with pytest.raises(NotAllBuilt, match="nothing was built") as caught:
        run.dry_run(cloud.master, call(vms=["a", large, "b"]))
    assert sorted(caught.value.table["plan"]) == ["a", "b"]

    with pytest.raises(NotAllBuilt, match="run it again"):
        built(cloud, vms=["a", large, "b"])
    assert len(cloud.hosts.where("a") + cloud.hosts.where("b")) == 2


def test_only_hosts_that_are_asked_for_are_taken(cloud):
    assert set(built(cloud, host="hyper2")["built"].values()) == {"hyper2"}
    with pytest.raises(NotAllBuilt, match=r"not the host asked for \(hyper2\) \(hyper1, hyper3\)"):
        built(cloud, vms=[{"name": "big", "mem": 10**6}], host="hyper2")


def test_hosts_that_are_not_asked_for_may_be_where_its_vms_go_if_one_dies(cloud):
    asked_of = {"host": "hyper2", "headroom": True}
    one = call(1, **asked_of).requests[0]

    assert deploy.dry_run(cloud.master, one)["hyper2"]["fits"]
    assert run.dry_run(cloud.master, call(2, **asked_of))["plan"] == {
        "web1": "hyper2",
        "web2": "hyper2",
    }


def test_no_host_is_at_more_than_its_limit(cloud):
    at, most, lock, usual = {}, {}, threading.Lock(), cloud.hosts.build

    def build(host, name, *args, **kwargs):
        with lock:
            at[host] = at.get(host, 0) + 1
            most[host] = max(most.get(host, 0), at[host])
        time.sleep(0.05)
        if host == "hyper3":
            with lock:
                at[host] -= 1
            raise refusal(name)
        usual(host, name, *args, **kwargs)
        with lock:
            at[host] -= 1

    cloud.hosts.does["virt.init"] = build

    done = built(cloud, count=12, per_host=2)

    assert len(done["built"]) == 12
    assert max(most.values()) == 2


def test_minions_that_do_not_answer_are_named_and_stay(cloud, monkeypatch):
    answered = {"web1": time.monotonic() + 5}
    monkeypatch.setattr(
        run.minionwait,
        "wait_for_minions",
        lambda _cloud, until, out, **_options: out.update(
            {n: answered[n] for n in answered if n in until}
        ),
    )

    with pytest.raises(NotAllBuilt, match="keeps its key, but its minion does not") as caught:
        built(cloud, count=2, wait=True)

    assert caught.value.table["failed"].keys() == {"web2"}
    assert caught.value.table["seconds"].keys() == {"web1"}
    assert cloud.hosts.where("web2")
    assert key(cloud, "web2")
    with pytest.raises(NotAllBuilt, match="1 VM that this call had built is purged again"):
        built(cloud, vms=["other"], wait=True, whole=True)
    assert cloud.hosts.where("other") == []


def test_progress_says_how_many_are_done_and_how_long_the_others_take(cloud, said):
    master = cloud.master

    def progress(stage, **figures):
        said.append(f"{stage} {figures.get('detail', '')}")

    cloud.master = planning.Cloud(opts=master.opts, settings=master.settings, progress=progress)
    built(cloud, count=3)

    assert said[:2] == ["Searching 3 hypervisors", "Placing 3 VMs on 3 hosts"]
    assert re.match(r"Done 1 of 3 VMs, about \d+ s to go; web\d on hyper\d", said[2])
    assert said[-1].startswith("Done 3 of 3 VMs; web")


def test_a_hypervisors_name_is_refused(cloud):
    with pytest.raises(BadArgument, match="hyper"):
        built(cloud, pattern="hyper{}", count=2)
    assert cloud.hosts.sent == []
