"""A clone is ordered of the host that has its source, as a build is: one name, one key, one end."""

import pytest
import told
from fleetkit import cloud as make_cloud
from saltvirt.cluster import minionkeys
from saltvirt.core import wire
from saltvirt.core.errors import BadArgument, MasterError, NameTaken, NoSuchVm, VirtError
from saltvirt.vm.clone.master import cloning
from saltvirt.vm.create.master import deploy
from saltvirt.vm.create.master.vmrequest import Terms

GIVEN = {"seed_method": "nocloud"}


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """Three hosts; hyper2 has a stopped VM, ``web``."""
    made = make_cloud(monkeypatch, opts, tmp_path)
    made.hosts.put("hyper2", "web", "shutdown")
    made.hosts.does["virt.clone"] = lambda host, _source, name, **given: made.hosts.build(
        host, name, **given
    )
    monkeypatch.setattr(cloning, "act", lambda _cloud, _host, _fun, *_values, **_given: INFO)
    return made


INFO = wire.plain(told.moving(name="web", disks=[{"how": "push"}]))


def request(cloud, name="db", source="web", *, wait=False, **given):
    """Return the request of a call."""
    return cloning.parse(cloud.master, source, name, {**GIVEN, **given}, Terms(wait=wait))


def clone(cloud, name="db", **given):
    """Clone a VM as the runner does."""
    return deploy.deploy(cloud.master, request(cloud, name, **given))


def test_the_host_of_the_source_is_ordered_and_the_key_is_the_clones(cloud):
    said = clone(cloud)

    assert (said["name"], said["host"], cloud.hosts.where("db")) == ("db", "hyper2", ["hyper2"])
    host, function, kwarg = cloud.hosts.sent[-1]
    assert (host, function) == ("hyper2", "virt.clone")
    assert kwarg["pub_key"].strip() == minionkeys.read_accepted(cloud.opts, "db").strip()
    assert "PRIVATE" not in str(kwarg["priv_key"]) and kwarg["seed_method"] == "nocloud"


def test_without_a_seed_there_is_no_key(cloud):
    clone(cloud, seed=False)

    assert "pub_key" not in cloud.hosts.sent[-1][2]
    assert minionkeys.read_accepted(cloud.opts, "db") is None


@pytest.mark.parametrize(
    ("name", "given", "error", "why"),
    [
        ("hyper9", {}, VirtError, "hypervisor"),
        ("web", {}, NameTaken, "'web' is on hyper2 already"),
        ("other", {}, NameTaken, "'other' is on hyper1 already"),
        ("db", {"colour": "red"}, BadArgument, "colour"),
        ("db", {"pub_key": "x"}, BadArgument, "salt HOST virt.clone web"),
        ("db/", {}, BadArgument, "db/"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(cloud, name, given, error, why):
    cloud.hosts.put("hyper1", "other")

    with pytest.raises(error, match=why):
        clone(cloud, name, **given)

    assert cloud.hosts.sent == [] and minionkeys.read_accepted(cloud.opts, name.strip("/")) is None


@pytest.mark.parametrize("how", [deploy.deploy, cloning.dry_run])
def test_where_nobody_can_tell_who_answers_none_is_made_that_would_be_waited_for(cloud, how):
    cloud.opts["minion_data_cache"] = False

    with pytest.raises(MasterError, match="minion_data_cache is off"):
        how(cloud.master, request(cloud, wait=True))

    assert cloud.hosts.sent == [] and minionkeys.read_accepted(cloud.opts, "db") is None


def test_a_host_that_refuses_has_the_key_taken_back(cloud):
    def fails(*_values, **_given):
        raise VirtError("VM 'web' runs")

    cloud.hosts.does["virt.clone"] = fails

    with pytest.raises(VirtError, match="hyper2: VM 'web' runs"):
        clone(cloud)

    assert minionkeys.read_accepted(cloud.opts, "db") is None


def test_there_is_something_to_clone(cloud):
    with pytest.raises(NoSuchVm, match="no VM called 'gone'"):
        request(cloud, source="gone")


@pytest.mark.parametrize("more", [{"autostart": True}, {}])
def test_a_dry_run_says_whether_it_starts_with_its_host(cloud, monkeypatch, more):
    plan = {
        **dict.fromkeys(("source", "name", "domain_type"), "x"),
        **dict.fromkeys(("vcpus", "memory_mib"), 1),
        **dict.fromkeys(("disks", "nics", "files", "to_fetch", "warnings"), []),
        **dict.fromkeys(("arch", "seed", "xml")),
        "start": True,
    }
    wanted = request(cloud)
    monkeypatch.setattr(cloning, "act", lambda *_values, **_given: {**plan, **more})

    # A host of the release before says nothing of it, and knows of none.
    said = cloning.dry_run(cloud.master, wanted)["hyper2"]
    assert said["autostart"] is bool(more)
