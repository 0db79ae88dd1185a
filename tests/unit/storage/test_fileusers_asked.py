"""All hosts are asked about each file on shared storage, before anything is said to be done."""

import asloaded
import pytest
from fleetkit import is_tidy, key
from saltvirt.cluster.inventory import inventory
from saltvirt.core.errors import VirtError
from saltvirt.storage.master import fileusers
from saltvirt.vm.purge.master import purging


@pytest.fixture
def asked(monkeypatch):
    """Have no host need any file; return the files of each question."""
    questions = []

    def ask(_cloud, _host, paths, **_given):
        questions.append(list(paths))
        return {"free": list(paths), "used": {}, "doubts": {}}

    # Mocked: unit tests have no minions.
    monkeypatch.setattr(fileusers, "ask", ask)
    return questions


def host_with(monkeypatch, *files):
    """Have a host that asks about one file at a time, as long as one is not known to be free."""

    def act(_cloud, _host, _fun, *_args, kwarg, **_options):
        left = [path for path in files if path not in kwarg["replies"].get("free", [])]
        return {fileusers.ASK: left[:1]} if left else {"deleted": True}

    monkeypatch.setattr(fileusers, "act", act)


def test_a_host_that_asks_about_a_second_file_gets_an_answer_to_both(monkeypatch, asked):
    host_with(monkeypatch, "/b", "/a")

    done = fileusers.order(None, "hyper1", "virt.delete_snapshots", ["web1", "s1"])

    assert done == {"deleted": True}
    assert asked == [["/b"], ["/a", "/b"]]


def test_a_host_that_asks_without_end_is_said_to_have_changed_nothing(monkeypatch, asked):
    host_with(monkeypatch, *(f"/{number}" for number in range(99)))

    with pytest.raises(VirtError, match="hyper1 has changed nothing, as it asks for further files"):
        fileusers.order(None, "hyper1", "virt.delete_snapshots", ["web1", "s1"])

    assert len(asked) < 10


@pytest.mark.parametrize("shrink", [True, False])
def test_the_host_gets_the_arguments_that_the_runner_was_given(monkeypatch, cloud, shrink):
    ordered = []

    def act(_cloud, host, fun, *args, kwarg, **_options):
        ordered.append((host, fun, args, kwarg))
        return True

    # Mocked: unit tests have no minions.
    monkeypatch.setattr(fileusers, "act", act)
    monkeypatch.setattr(inventory, "require_host", lambda _cloud, host: host)
    runner = asloaded.module("_runners/virt_files.py", **cloud.opts)
    runner.__opts__, runner.__context__ = cloud.opts, {}

    answer = runner.volume_resize("hyper1", "p1", "a.raw", "8g", shrink=shrink)

    assert answer == {"hyper1": True}
    kwarg = {"shrink": shrink, "replies": {}}
    assert ordered == [("hyper1", "virt.volume_resize", ("p1", "a.raw", "8g"), kwarg)]


@pytest.mark.parametrize("is_dry", [True, False])
def test_the_host_is_told_of_a_dry_run_alone(monkeypatch, cloud, is_dry):
    ordered = []

    def act(_cloud, _host, fun, *args, kwarg, **_limits):
        ordered.append((fun, args, kwarg))
        return "would be deleted" if kwarg.get("test") else True

    # Mocked: unit tests have no minions.
    monkeypatch.setattr(fileusers, "act", act)
    monkeypatch.setattr(inventory, "require_host", lambda _cloud, host: host)
    runner = asloaded.module("_runners/virt_files.py", **cloud.opts)
    runner.__opts__, runner.__context__ = cloud.opts, {}

    answer = runner.volume_delete("hyper1", "p1", "a.raw", dry_run=is_dry)

    assert answer == {"hyper1": "would be deleted" if is_dry else True}
    kwarg = {"test": True, "replies": {}} if is_dry else {"replies": {}}
    assert ordered == [("virt.volume_delete", ("p1", "a.raw"), kwarg)]


def test_a_vm_whose_host_asks_instead_of_purging_it_keeps_its_key(monkeypatch, cloud):
    cloud.init()
    before = key(cloud)
    # Mocked: hosts here are folders, which share no files.
    monkeypatch.setattr(purging, "act", lambda *_args, **_given: {fileusers.ASK: ["/dev/vg/web"]})

    with pytest.raises(VirtError, match="changed nothing.*/dev/vg/web.*run the command again"):
        cloud.purge()

    assert key(cloud) == before is not None
    assert cloud.hosts.where("web") == ["hyper1"] and is_tidy(cloud)
