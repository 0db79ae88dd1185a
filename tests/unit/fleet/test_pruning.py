"""Images that nobody uses are removed from all hosts at once, with one question."""

from dataclasses import replace

import pytest
from saltvirt.config import MasterSettings
from saltvirt.errors import MasterError
from saltvirt.fleet import images, inventory, minions
from saltvirt.fleet.cloud import Cloud

HOSTS = {
    "hyper1": {"a": ["web"], "b": []},
    "hyper2": {"a": [], "b": [], "c": []},
    "hyper3": {"a": []},
}


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
                value = {"removed": {d: 7 for d in arg[0] if there.get(d) == []}, "kept": {}}
            out[host] = minions.Reply(minion=host, value=value)
            if cloud.heard is not None:
                cloud.heard(out[host])
        return out

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(inventory, "every", lambda _cloud: list(HOSTS))
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
    told = ("virt.image_prune", ["hyper1", "hyper2"], ["b", "c"], {"dry_run": is_dry})
    assert asked[1:] == [told]


def test_a_host_that_fails_does_not_hide_what_the_others_removed(cloud, asked, monkeypatch):
    usual = minions.ask

    def ask(master, targets, fun, *arg, **options):
        out = usual(master, targets, fun, *arg, **options)
        if fun == "virt.image_prune":
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
        mute = {h: minions.Reply(minion=h, missing=True) for h in sorted(out) if h in silent}
        return {**mute, **{h: out[h] for h in sorted(out) if h not in silent}}

    monkeypatch.setattr(minions, "ask", ask)

    silent |= {"hyper1", "hyper2"}
    assert images.shown(cloud, None) == {
        "hyper3": {"a": {"users": []}},
        "unreachable": ["hyper1", "hyper2"],
    }
    with pytest.raises(MasterError, match="^no hypervisor answers: hyper1: does not answer$"):
        images.shown(cloud, "hyper1")
