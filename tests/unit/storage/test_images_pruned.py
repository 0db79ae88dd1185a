"""Images that nobody uses are removed from all hosts at once, when all have looked once more."""

from dataclasses import replace

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.core import locks
from saltvirt.core.errors import MasterError
from saltvirt.core.options.config import MasterSettings
from saltvirt.storage.master import images

HOSTS = {
    "hyper1": {"a": ["web"], "b": []},
    "hyper2": {"a": [], "b": [], "c": []},
    "hyper3": {"a": []},
}


def pruned(there, digests, step):
    """Return what a host says that has and uses what it says."""
    unused = [one for one in digests if there.get(one) == []]
    if step == "begin":
        return {"removed": {}, "kept": {}, "begun": unused}
    if step == "look":
        used = {one: f"used by {there[one]}" for one in digests if there.get(one)}
        return {"removed": {}, "kept": used}
    return {"removed": dict.fromkeys(unused, 7), "kept": {}}


@pytest.fixture
def asked(monkeypatch):
    """What the hosts were asked; each removes what it is told to and has, if it does not use it."""
    questions = []

    def ask(cloud, targets, fun, arg=(), kwarg=None, **_options):
        questions.append((fun, sorted(targets), *arg, kwarg))
        out = {}
        for host in targets:
            there = HOSTS[host]
            if fun == "virt.images":
                value = {digest: {"users": users} for digest, users in there.items()}
            else:
                value = pruned(there, arg[0], kwarg.get("step"))
            out[host] = minions.Reply(minion=host, value=value)
            if cloud.on_reply is not None:
                cloud.on_reply(out[host])
        return out

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: list(HOSTS))
    return questions


@pytest.fixture
def cloud(opts):
    """A master."""
    settings = MasterSettings(hypervisors=list(HOSTS))
    return Cloud(opts=opts, settings=settings, progress=lambda *_args, **_figures: None)


@pytest.mark.parametrize("is_dry", [True, False])
def test_all_hosts_that_have_anything_to_remove_are_asked_at_once(cloud, asked, is_dry):
    removed = images.prune(cloud, is_dry=is_dry)

    assert removed == {"hyper1": {"b": 7}, "hyper2": {"b": 7, "c": 7}}
    # What one host uses is removed from none, and who has nothing else is not asked.
    told, having = ["b", "c"], ["hyper1", "hyper2"]
    dry = [(having, told, {"dry_run": True})]
    steps = [
        (having, told, {"step": "begin"}),
        (list(HOSTS), told, {"step": "look"}),
        (having, told, {"step": "end"}),
    ]
    assert asked[1:] == [("virt.image_prune", *one) for one in (dry if is_dry else steps)]


def when_looking(monkeypatch, do, step="look"):
    """Have something happen before the hosts look once more, or are asked another step."""
    usual = minions.ask

    def ask(master, targets, fun, arg=(), kwarg=None, **options):
        found = do() if (kwarg or {}).get("step") == step else {}
        return {**usual(master, targets, fun, arg, kwarg, **options), **(found or {})}

    monkeypatch.setattr(minions, "ask", ask)


def test_what_a_host_uses_by_now_is_removed_from_none(cloud, asked, monkeypatch):
    when_looking(monkeypatch, lambda: monkeypatch.setitem(HOSTS["hyper3"], "b", ["new"]))

    assert images.prune(cloud, is_dry=False) == {"hyper1": {}, "hyper2": {"c": 7}}
    assert asked[-1] == ("virt.image_prune", ["hyper1", "hyper2"], ["c"], {"step": "end"})


def test_where_a_host_does_not_look_once_more_all_is_kept(cloud, asked, monkeypatch):
    silent = {"hyper3": minions.Reply(minion="hyper3", is_missing=True)}
    when_looking(monkeypatch, lambda: silent)

    with pytest.raises(MasterError, match="hyper3: does not answer") as caught:
        images.prune(cloud, is_dry=False)

    assert caught.value.table == {"removed": {"hyper1": {}, "hyper2": {}}}
    assert asked[-1] == ("virt.image_prune", ["hyper1", "hyper2"], [], {"step": "end"})


@pytest.mark.parametrize("step", ["begin", "look"])
def test_an_interruption_keeps_all(cloud, asked, monkeypatch, step):
    def interrupt():
        raise KeyboardInterrupt

    when_looking(monkeypatch, interrupt, step)

    with pytest.raises(KeyboardInterrupt):
        images.prune(cloud, is_dry=False)

    assert asked[-1] == ("virt.image_prune", ["hyper1", "hyper2"], [], {"step": "end"})


def test_two_runners_do_not_end_what_the_other_has_begun(cloud, asked):
    with (
        locks.hold_lock(f"{cloud.opts['cachedir']}/salt-virt/image-prune.lock"),
        pytest.raises(MasterError, match="another virt.image_prune is at work on this master"),
    ):
        images.prune(cloud, is_dry=False)

    assert [one[0] for one in asked] == ["virt.images"]
    assert images.prune(cloud, is_dry=False)["hyper1"] == {"b": 7}


def test_a_host_that_fails_does_not_hide_what_the_others_removed(cloud, asked, monkeypatch):
    usual = minions.ask

    def ask(master, targets, fun, *arg, **options):
        out = usual(master, targets, fun, *arg, **options)
        if fun == "virt.image_prune" and arg[-1] == {"step": "begin"}:
            out["hyper1"] = minions.Reply(minion="hyper1", error="web is being built or moved here")
        return out

    monkeypatch.setattr(minions, "ask", ask)

    with pytest.raises(MasterError, match="hyper1: web is being built") as caught:
        images.prune(cloud, is_dry=False)
    assert caught.value.table == {"removed": {"hyper2": {"b": 7, "c": 7}}}


@pytest.mark.parametrize(("is_dry", "what"), [(True, "Searched"), (False, "Removed")])
def test_it_is_said_how_many_hosts_are_done(cloud, asked, is_dry, what):
    said = []

    def progress(stage, detail):
        said.append(f"{stage} ({detail})")

    images.prune(replace(cloud, progress=progress), is_dry=is_dry)

    assert said[0] == "Searching (3 hypervisors)"
    assert said[-1] == f"{what} (2 of 2 hypervisors)"


def test_images_of_hosts_that_are_all_silent_are_no_answer(cloud, asked, monkeypatch):
    silent = set()
    usual = minions.ask

    def ask(master, targets, fun, *arg, **options):
        out = usual(master, targets, fun, *arg, **options)
        mute = {h: minions.Reply(minion=h, is_missing=True) for h in sorted(out) if h in silent}
        return {**mute, **{h: out[h] for h in sorted(out) if h not in silent}}

    monkeypatch.setattr(minions, "ask", ask)

    silent |= {"hyper1", "hyper2"}
    assert images.show_images(cloud, None) == {
        "hyper3": {"a": {"users": []}},
        "unreachable": ["hyper1", "hyper2"],
    }
    with pytest.raises(MasterError, match="^no hypervisor answers: hyper1: does not answer$"):
        images.show_images(cloud, "hyper1")
