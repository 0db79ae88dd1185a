"""How long a new VM's minion is waited for, and what is said where it does not come."""

import re

import fleetkit
import pytest
import tightclouds
import told
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import MasterError
from saltvirt.core.options.config import MasterSettings
from saltvirt.vm.create.master import deploy, minionwait
from saltvirt.vm.create.master.many import run
from saltvirt.vm.create.master.many.manyrequest import Call
from saltvirt.vm.guest.master import reachvm


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """Hosts whose VMs' minions never answer; ``told`` is the progress, ``waited`` how long."""
    made = fleetkit.cloud(monkeypatch, opts, tmp_path)
    made.told, made.waited = [], []

    def progress(stage, **figures):
        made.told.append((stage, figures.get("detail", "")))

    made.master = Cloud(opts=made.opts, settings=made.master.settings, progress=progress)

    def wait(_cloud, _name, wait_s):
        made.waited.append(wait_s)

    monkeypatch.setattr(minionwait, "wait_for_start", wait)
    monkeypatch.setattr(reachvm, "find_login", lambda *_args, **_options: {"addresses": []})
    return made


def emulates(cloud, kind="qemu"):
    """Have all hosts run guests of one kind by default."""
    usual = cloud.hosts._info
    types = {"default": kind, "usable": [kind], "why": "no /dev/kvm"}
    cloud.hosts._info = lambda vms: {**usual(vms), "domain_types": types}


def silent(cloud, **given):
    """Deploy a VM that stays silent; return the error as it is told."""
    request = fleetkit.request(image="salt://a", wait=True, **given)
    with pytest.raises(HostCommandFailed) as caught:
        deploy.deploy(cloud.master, request)
    return caught.value


def test_a_host_that_emulates_is_given_more_time_and_it_is_said_why(cloud):
    emulates(cloud)

    silent(cloud)

    assert cloud.waited == [1200]
    detail = dict(cloud.told)["Waiting"]
    assert detail == "for its minion, at most 1200 s; its host has no KVM and emulates it"


def test_with_kvm_it_is_five_minutes(cloud):
    emulates(cloud, "kvm")

    silent(cloud)

    assert cloud.waited == [300]
    assert dict(cloud.told)["Waiting"] == "for its minion, at most 300 s"


@pytest.mark.parametrize(
    ("option", "given", "emulated", "wait_s"),
    [
        (None, None, False, 300),
        (None, None, True, 1200),
        (60, None, True, 60),
        (60, 0, True, 0),
        (None, 900, False, 900),
    ],
)
def test_the_call_is_heard_before_the_master_and_that_before_the_host(
    option, given, emulated, wait_s
):
    types = {"default": "qemu" if emulated else "kvm", "usable": [], "why": ""}
    info = told.but(tightclouds.host(1), domain_types=types)
    request = fleetkit.request(wait_s=given)

    assert minionwait.find_wait_limit(MasterSettings(wait_s=option), request, info).wait_s == wait_s


def test_a_slow_vm_is_not_told_as_lost(cloud):
    error = silent(cloud, wait_s=7)

    text = str(error)
    assert "\n" not in text and cloud.waited == [7]
    for words in (
        "VM 'web' runs on hyper1 and keeps its key",
        "its minion does not answer after 7 s",
        "it may still come: salt web test.ping",
        "wait_s= of virt.init",
        "virt:wait_s of the master",
        "salt-run virt.console_log web",
        "salt-run virt.purge web",
    ):
        assert words in text
    # The VM is not thrown away, and the command has failed all the same.
    assert fleetkit.key(cloud) and cloud.hosts.where("web") == ["hyper1"]


def test_who_names_a_host_is_told_of_that_one(cloud):
    silent(cloud, host="hyper3")

    assert ("Placing", "hyper3 fits") in cloud.told
    silent_too = [detail for stage, detail in cloud.told if "hosts fit" in detail]
    assert silent_too == []


def test_what_a_host_warns_of_is_in_the_answer_and_beside_an_error(cloud, monkeypatch):
    build, lines = cloud.hosts.order, ["no\nSSH server \x1b[31m" + "x" * 900, 7, *["y"] * 20]

    def order(*args, **options):
        reply = build(*args, **options)
        return minions.Reply(minion=reply.minion, value={"warnings": lines})

    monkeypatch.setattr(minions, "order", order)

    error = silent(cloud)

    assert len(error.table["warnings"]) == 4
    first = error.table["warnings"][0]
    assert first.startswith(r"no SSH server \x1b[31mx") and len(first) < 410 and first.isprintable()
    cloud.hosts.remove("hyper1", "web")
    done = deploy.deploy(cloud.master, fleetkit.request("web2", image="salt://a"))
    assert done["warnings"] == error.table["warnings"]


@pytest.mark.parametrize("said", [True, None, "x", {}, {"warnings": "x"}, {"warnings": [None]}])
def test_a_host_without_warnings_gives_none(said):
    assert hostcommands.warnings(said) == []


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (MasterError("the Salt master does not answer"), "the Salt master does not answer"),
    ],
)
def test_whatever_ends_the_waiting_it_is_said_that_the_vm_runs_and_what_removes_it(
    cloud, monkeypatch, cut, why
):
    def cut_off(*_args, **_options):
        raise cut

    monkeypatch.setattr(minionwait, "wait_for_start", cut_off)

    said = str(silent(cloud))

    assert f"{why}: VM 'web' runs on " in said and "keeps its key" in said
    assert "salt-run virt.purge web" in said


def ways(image=None):
    """Return what deploys a VM and waits for its minion, alone and as one of many; its trial."""
    given = {"image": image} if image else {}

    def many(cloud, *, wait=True, how=run.deploy_many):
        requests = [fleetkit.request(wait=wait, **given)]
        return how(cloud.master, Call(requests=requests, per_host=1, max_parallel=1))

    def alone(cloud, *, wait=True, how=deploy.deploy):
        return how(cloud.master, fleetkit.request(wait=wait, **given))

    return [(alone, deploy.dry_run), (many, run.dry_run)]


@pytest.mark.parametrize(("way", "trial"), ways("salt://a"))
def test_where_nobody_can_tell_who_answers_nothing_is_made_that_would_be_waited_for(
    cloud, way, trial
):
    cloud.opts["minion_data_cache"] = False

    with pytest.raises(MasterError) as refused:
        way(cloud)
    with pytest.raises(MasterError, match=f"^{re.escape(str(refused.value))}$"):
        way(cloud, how=trial)

    assert str(refused.value) == (
        "minion_data_cache is off, so that this master cannot tell whether a VM's own minion "
        "answers, or another guest in its name; set minion_data_cache: True in the master's "
        "configuration, then restart salt-master; or give wait=False"
    )
    assert cloud.hosts.where("web") == [] and fleetkit.key(cloud) is None
    assert way(cloud, wait=False) and cloud.hosts.where("web")


@pytest.mark.parametrize(("way", "trial"), ways())
def test_a_vm_without_a_minion_is_made_all_the_same(cloud, way, trial):
    cloud.opts["minion_data_cache"] = False

    assert way(cloud, how=trial) and cloud.hosts.where("web") == []
    assert way(cloud) and cloud.hosts.where("web")
