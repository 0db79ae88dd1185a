"""What the end of a deployment says: address and login, or the end of a silent VM's console."""

import fleetkit
import pytest
from askedpillar import asked
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import MasterError, VirtError
from saltvirt.core.salt import compat
from saltvirt.vm.create.master import deploy, minionwait
from saltvirt.vm.guest.master import reachvm

VM = {"addresses": ["192.0.2.7"], "ssh_user": "debian"}


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """A cloud of three hosts that answer as they are told; ``says`` has what they do."""
    made = fleetkit.cloud(monkeypatch, opts, tmp_path)
    made.says = {"virt.vm_info": {"web": VM}, "virt.console_log": ""}
    usual = made.hosts.ask

    def ask(cloud, targets, fun, arg=(), *args, **_options):
        if fun not in made.says:
            return usual(cloud, targets, fun, arg, *args)
        value = made.says[fun]
        if isinstance(value, VirtError):
            raise value
        error = str(value) if isinstance(value, Exception) else None
        return {host: minions.Reply(minion=host, value=value, error=error) for host in targets}

    monkeypatch.setattr(minions, "ask", ask)
    return made


def awaited(cloud, monkeypatch, seconds, **given):
    """Deploy a VM whose minion answers after some seconds, None for never."""
    monkeypatch.setattr(minionwait, "wait_for_start", lambda *_args, **_kwargs: seconds)
    request = fleetkit.request(wait=True, **{"image": "salt://a.qcow2", **given})
    return deploy.deploy(cloud.master, request)


def test_a_deployment_says_where_the_vm_is_reached_and_how(cloud, monkeypatch):
    assert awaited(cloud, monkeypatch, 12.5) == {
        "name": "web",
        "host": "hyper1",
        "minion": "answers",
        "seconds": 12.5,
        "addresses": ["192.0.2.7"],
        "login": "ssh debian@192.0.2.7",
    }


def test_without_waiting_it_says_what_is_known_by_then(cloud):
    cloud.says["virt.vm_info"] = {"web": {"addresses": [], "ssh_user": None}}

    said = cloud.init()

    assert said["addresses"] == []
    assert said["login"].startswith("virsh console web (on hyper1; asks for a password")
    assert "minion" not in said


def test_a_vm_that_is_not_started_is_reached_nowhere(cloud, monkeypatch):
    assert awaited(cloud, monkeypatch, 1, start=False) == {"name": "web", "host": "hyper1"}


def test_where_the_host_knows_no_address_the_minion_has_told_it(cloud, monkeypatch):
    cloud.says["virt.vm_info"] = {"web": {"addresses": [], "ssh_user": "debian"}}
    grains = {"ipv4": ["127.0.0.1", "192.0.2.9"], "ipv6": ["fe80::1", "2001:db8::9"]}
    monkeypatch.setattr(compat.Grains, "of", lambda _self, name: {"web": grains}.get(name))

    said = awaited(cloud, monkeypatch, 1)

    assert said["addresses"] == ["192.0.2.9", "2001:db8::9"]
    assert said["login"] == "ssh debian@192.0.2.9"
    assert said["addresses_from"] == "minion"


def test_of_a_minion_that_came_and_is_silent_the_master_knows_what_it_said(cloud, monkeypatch):
    cloud.says["virt.vm_info"] = {"web": {"addresses": [], "ssh_user": "debian"}}
    told = {"ipv4": ["127.0.0.1", "192.0.2.9"]}
    monkeypatch.setattr(compat.Grains, "of", lambda _self, name: {"web": told}.get(name))

    with pytest.raises(HostCommandFailed) as silent:
        awaited(cloud, monkeypatch, None)

    assert silent.value.table["addresses"] == ["192.0.2.9"]
    assert silent.value.table["login"] == "ssh debian@192.0.2.9"
    # Of a name without a key it is what another VM has said.
    assert reachvm._read_grains(cloud.master, "other") == {}


@pytest.mark.parametrize(
    "said",
    [
        None,
        "nonsense",
        {"web": "nonsense"},
        {"web": {"addresses": "192.0.2.7", "ssh_user": 7}},
        {"web": {"addresses": [["x"], "1.2.3.4; reboot"], "ssh_user": "-oProxyCommand=reboot"}},
        {"other": VM},
        ValueError("it knows no such function"),
    ],
)
@pytest.mark.parametrize("grains", [None, "x", {"ipv4": "192.0.2.7", "ipv6": [{}, "$(reboot)"]}])
def test_whatever_host_and_guest_say_the_vm_is_deployed(cloud, monkeypatch, said, grains):
    cloud.says["virt.vm_info"] = said
    monkeypatch.setattr(compat.Grains, "of", lambda _self, name: {"web": grains}.get(name))

    made = awaited(cloud, monkeypatch, 1)

    assert (made["addresses"], made["login"]) == ([], "salt web cmd.run COMMAND")


def test_a_master_that_does_not_answer_any_more_takes_nothing_back(cloud, monkeypatch):
    gone = MasterError("the Salt master does not answer")
    cloud.says |= {"virt.vm_info": gone, "virt.console_log": gone}

    assert awaited(cloud, monkeypatch, 1)["addresses"] == []
    assert reachvm.console(cloud.master, "hyper1", "web") == {
        "console_error": "the Salt master does not answer",
        "console_command": "salt-run virt.console_log web",
    }


def silent(cloud, monkeypatch):
    """Deploy a VM whose minion never answers; return the error as a runner tells it."""
    with pytest.raises(HostCommandFailed, match="does not answer after") as caught:
        awaited(cloud, monkeypatch, None)
    assert "\n" not in str(caught.value)
    return {"error": str(caught.value), **caught.value.table}


def test_the_end_of_a_silent_vms_console_is_shown(cloud, monkeypatch):
    text = "".join(f"line {n}\n\n" for n in range(30)) + "\x1b[31mlogin:\x07 " + "x" * 500
    cloud.says["virt.console_log"] = text

    failure = silent(cloud, monkeypatch)

    # With a key, somebody can go and look why there is no minion.
    assert failure["login"] == "ssh debian@192.0.2.7"
    assert len(failure["console"]) == 10
    assert failure["console"][:2] == ["line 21", "line 22"]
    assert failure["console"][-1].startswith("login: xxx") and len(failure["console"][-1]) < 210
    assert failure["console_command"] == "salt-run virt.console_log web"


def test_a_console_that_said_nothing_is_said(cloud, monkeypatch):
    failure = silent(cloud, monkeypatch)

    assert failure["console"] == []


@pytest.mark.parametrize("said", [ValueError("no console\nlog of 'web'"), 7, None])
def test_a_console_that_cannot_be_read_does_not_hide_the_error(cloud, monkeypatch, said):
    cloud.says["virt.console_log"] = said

    failure = silent(cloud, monkeypatch)

    assert "console" not in failure
    reason = "no console log of 'web'" if isinstance(said, ValueError) else "its answer is not text"
    wanted = f"hyper1: {reason}"
    assert failure["console_error"] == wanted


@pytest.mark.parametrize("is_kept", [True, False])
def test_what_a_guest_has_not_told_with_its_request_for_pillar_is_not_asked_for(cloud, is_kept):
    """Any minion has the master store a return of any other, be there a cache of grains or not."""
    cloud.opts["minion_data_cache"] = is_kept
    cloud.says["virt.vm_info"] = {"web": {"addresses": [], "ssh_user": "debian"}}
    cloud.init()

    said = reachvm.find_login(cloud.master, "hyper1", "web", has_minion=True)

    assert said == {"addresses": [], "login": "salt web cmd.run COMMAND"}
    asked(cloud.opts, "web", {"ipv4": ["192.0.2.9"]})
    said = reachvm.find_login(cloud.master, "hyper1", "web", has_minion=True)
    assert said["login"] == "ssh debian@192.0.2.9"


@pytest.mark.parametrize(
    ("nic", "profile", "is_told"),
    [
        ("nat", {"networks": ["default"], "bridges": [], "links": [], "bridge_vlans": False}, True),
        ("nat", {"networks": [], "bridges": ["br7"], "links": [], "bridge_vlans": False}, False),
        ("default", {}, False),
    ],
)
def test_what_nat_cannot_is_said_before_anything_is_made(cloud, nic, profile, is_told):
    told = []
    info = cloud.hosts._info
    networks = {"default": {"active": True, "bridge": "virbr0"}}
    cloud.hosts._info = lambda vms: {
        **info(vms),
        "profiles": {"disk": {"default": {"size_mib": 1}}, "nic": {nic: profile}},
        "networks": networks,
        "bridges": ["br7", "br0"],
    }
    master = Cloud(
        opts=cloud.opts,
        settings=cloud.master.settings,
        progress=lambda stage, **figures: told.append((stage, figures.get("detail", ""))),
    )
    deploy.deploy(master, fleetkit.request(nic=nic))

    stages = [stage for stage, _detail in told]
    assert ("Network" in stages) is is_told
    if is_told:
        assert stages.index("Network") < stages.index("Placing")
        assert "a move breaks its connections" in dict(told)["Network"]
