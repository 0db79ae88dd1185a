"""All hosts are asked about files on storage that they share; what they answer is not believed."""

import pytest
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.inventory.surveys import Survey
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import MasterError
from saltvirt.placement.answers import FileUsers
from saltvirt.storage.master import fileusers

PATH = "/mnt/shared/web1.qcow2"


class Cloud:
    """Stand for a cloud whose hosts are played by the test."""

    @staticmethod
    def progress(*_stage, **_more):
        """Show nothing."""


@pytest.fixture
def two_hosts(monkeypatch):
    """Have h2 answer that it needs no file."""

    def survey(_cloud, hosts, _fun, args, _kwarg):
        return Survey(answers={host: {path: FileUsers() for path in args[0]} for host in hosts})

    monkeypatch.setattr(inventory, "allowed_hosts", lambda _cloud: ["h1", "h2"])
    monkeypatch.setattr(inventory, "survey", survey)


def test_a_file_that_an_answer_leaves_out_is_in_doubt():
    answers = {"h2": {PATH: FileUsers()}, "h3": {f"{PATH} ": FileUsers()}}

    decided = fileusers.decide([PATH], answers, [])

    assert decided["free"] == []
    assert decided["doubts"] == {PATH: "h3: its answer does not name the file"}


def test_a_host_that_asks_about_a_file_again_and_again_has_done_nothing(monkeypatch, two_hosts):
    # As of a name with a character that cannot be shown: the master sees it escaped.
    monkeypatch.setattr(fileusers, "act", lambda *_args, **_more: {"ask_all_hosts": [PATH]})

    with pytest.raises(HostCommandFailed, match="h1 has changed nothing, .*web1.qcow2.*; run the"):
        fileusers.order(Cloud(), "h1", "virt.volume_delete", ["pool", "web1.qcow2"])


def test_a_host_does_not_have_the_others_look_for_files_without_end(two_hosts):
    paths = [f"/mnt/shared/{number}" for number in range(10_001)]

    with pytest.raises(MasterError, match="h1 names 10,001 files"):
        fileusers.ask(Cloud(), "h1", paths)
