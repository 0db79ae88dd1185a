"""A host with VMs is shut out only by force, because its VMs are out of reach afterwards."""

import pytest
from saltvirt.certificates.master import allowing
from saltvirt.cluster import membership
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.inventory.surveys import Survey
from saltvirt.core.errors import MasterError
from saltvirt.core.salt import compat
from test_allowing import master, notices, now, secured

__all__ = ["master", "notices", "secured"]


@pytest.fixture
def answers(secured, monkeypatch):
    """The VMs in the answers of hosts; hosts that are not in here are silent."""
    vms_by_host = {}
    lastseen.refresh(secured, lastseen.ReportedNames(names_by_host={"hyper3": ["web1", "db1"]}))

    def survey(cloud, hosts, fun, *_args, **_options):
        assert fun == "virt.vm_state"
        answers_by_host = {host: vms_by_host[host] for host in hosts if host in vms_by_host}
        inventory.refresh_hints(cloud, lastseen.ReportedNames(names_by_host=answers_by_host))
        return Survey(
            answers=answers_by_host, unreachable=[host for host in hosts if host not in vms_by_host]
        )

    monkeypatch.setattr(inventory, "survey", survey)
    return vms_by_host


def refused(call, *args):
    """Return the error of a call that has changed nothing."""
    with pytest.raises(MasterError) as caught:
        call(*args)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("function", ["virt.disallow", "virt_pki.revoke"])
def test_a_silent_host_that_had_vms_is_shut_out_only_by_force(secured, notices, answers, function):
    def call(**force):
        if function == "virt.disallow":
            return allowing.disallow(secured, ["hyper3"], now(), **force)
        return allowing.revoke(secured, "hyper3", now(), **force)

    error = refused(call)

    line = str(error)
    assert "hyper3 had 2 VMs (db1, web1) when it last answered (does not answer" in line
    assert f"salt-run {function} hyper3 force=True" in line
    assert "salt-run virt.evacuate hyper3;" in line and "salt-run virt.host_lost hyper3;" in line
    assert error.table == {"last_seen": {"hyper3": ["db1", "web1"]}}
    assert not membership.read_listed(secured).is_disallowed("hyper3") and notices.hosts == []

    assert call(force=True)["last_seen"] == {"hyper3": ["db1", "web1"]}
    assert membership.read_listed(secured).is_disallowed("hyper3")


def test_the_answer_of_a_host_decides(secured, notices, answers):
    answers["hyper3"] = {"mail": "shutdown"}

    error = refused(allowing.disallow, secured, ["hyper3"], now())

    assert str(error).startswith("hyper3 has 1 VM (mail); nothing was changed")
    answers["hyper3"] = {}
    assert allowing.disallow(secured, ["hyper3"], now())["disallowed"] == ["hyper3"]


def test_of_several_hosts_each_with_vms_is_named_and_none_is_shut_out(secured, notices, answers):
    answers["hyper2"] = {"mail": "running"}

    error = refused(allowing.disallow, secured, ["hyper1", "hyper2", "hyper3"], now())

    assert "hyper2 has 1 VM (mail); hyper3 had 2 VMs" in str(error)
    assert "virt.evacuate HOST" in str(error)
    assert "salt-run virt.disallow hyper1 hyper2 hyper3 force=True" in str(error)
    assert not membership.read_listed(secured).is_disallowed("hyper1")


def test_a_host_that_is_shut_out_already_is_shut_out_again_without_force(secured, notices, answers):
    allowing.disallow(secured, ["hyper3"], now(), force=True)

    assert allowing.disallow(secured, ["hyper3"], now())["disallowed"] == ["hyper3"]


def test_a_host_without_a_key_is_shut_out_without_force(secured, notices, answers):
    compat.KeyStore(secured).discard("hyper3")

    assert allowing.disallow(secured, ["hyper3"], now())["disallowed"] == ["hyper3"]


def test_a_host_that_cannot_be_asked_is_judged_by_its_last_seen_vms(
    secured, notices, answers, monkeypatch
):
    def fails(*_args, **_options):
        raise MasterError("the Salt master does not answer")

    monkeypatch.setattr(inventory, "survey", fails)

    assert "it cannot be asked: the Salt master" in str(
        refused(allowing.disallow, secured, ["hyper3"], now())
    )
    assert allowing.disallow(secured, ["hyper2"], now())["disallowed"] == ["hyper2"]


def test_an_unfinished_call_by_force_is_repeated_by_force(secured, notices, answers):
    notices.silent = "hyper1"

    error = refused(lambda: allowing.disallow(secured, ["hyper3"], now(), force=True))

    assert str(error).endswith("run salt-run virt.disallow hyper3 force=True again")
    assert error.table["last_seen"] == {"hyper3": ["db1", "web1"]}


def test_a_host_is_shut_out_by_force_though_the_vms_last_seen_cannot_be_read(
    secured, notices, answers, monkeypatch
):
    def damaged(_opts):
        raise MasterError("hints.json is damaged")

    monkeypatch.setattr(lastseen, "read_all", damaged)

    line = str(refused(allowing.disallow, secured, ["hyper3"], now()))
    assert "which VMs hyper3 had is not known, so nothing was changed: hints.json" in line
    assert line.endswith("salt-run virt.disallow hyper3 force=True")
    assert not membership.read_listed(secured).is_disallowed("hyper3")

    refused(lambda: allowing.disallow(secured, ["hyper3"], now(), force=True))
    assert membership.read_listed(secured).is_disallowed("hyper3")
