"""A VM never has a name that the glob of hypervisors matches, whichever was there first."""

import shlex
from contextlib import contextmanager

import pytest
from cloudkit import TINY

LIST = "/etc/salt/pki/master/libvirt/hypervisors.json"


@contextmanager
def configured(cloud, target, *, restarted=True):
    """Have another ``virt:hypervisors`` while the block runs, and leave the list as it was."""
    path = cloud.master_conf / "master.d/hypervisors.conf"
    cloud.sh("master", f"cp -a {LIST} /srv/hypervisors.json")
    path.write_text(f"virt.hypervisors: {target!r}\n")
    try:
        restart(cloud, restarted)
        yield
    finally:
        path.unlink()
        cloud.sh("master", f"mv /srv/hypervisors.json {LIST}")
        restart(cloud, restarted)


def restart(cloud, is_wanted):
    """Restart the master, whose external pillars go on with the configuration they began with."""
    if is_wanted:
        cloud.service("master", "salt-master", "restart")
        cloud.ready()


def test_a_glob_that_comes_to_match_a_vm_is_refused_until_that_is_shut_out(cloud):
    cloud.purge_all()
    made = cloud.run("virt.init", "hyper9", "1", "96", TINY, "host=hyper1", "seed=False")
    assert made.code == 0, made.out
    try:
        with configured(cloud, "hyper*", restarted=False):
            for words in (("virt.query",), ("virt.init", "web1", "1", "96", TINY)):
                refused = cloud.run(*words)
                assert refused.code == 1
                assert "hyper9 is a VM on hyper1, and virt:hypervisors matches" in refused.error
            command = refused.error.split(": ")[-1]
            assert command == "salt-run virt.disallow hyper9"
            assert cloud.run(*shlex.split(command)[1:]).code == 0
            assert "hyper9" in cloud.run("virt.query").data["hyper1"]["vm_info"]
            assert cloud.run("virt.purge", "hyper9").code == 0
    finally:
        cloud.purge_all()


@pytest.fixture(scope="module")
def globbed(cloud):
    """A master whose hypervisors are ``hyper*``."""
    cloud.purge_all()
    with configured(cloud, "hyper*"):
        yield cloud


@pytest.mark.parametrize("name", ["hyper9", "HYPER9"])
@pytest.mark.parametrize(
    "words",
    [
        ("salt-run", "virt.init", "{}", "1", "96", TINY, "wait=False"),
        ("salt-run", "virt.init", "{}", "1", "96", TINY, "dry_run=True"),
        ("salt-run", "virt.init", "{}", "1", "96", TINY, "seed=False", "host=hyper1", "force=True"),
        ("salt-run", "virt.authorize", "{}", "hyper1", "replace=True"),
        ("salt", "hyper1", "virt.init", "{}", "1", "96", TINY),
        ("salt", "hyper1", "virt.init", "{}", "1", "96", TINY, "seed=False", "start=False"),
        ("salt", "hyper1", "seed.mkconfig", "tmp=/srv/seed", "id_={}"),
    ],
    ids=["init", "dry run", "unseeded", "authorize", "by hand", "by hand, unseeded", "keys alone"],
)
def test_a_vm_never_gets_a_name_that_a_glob_matches(globbed, name, words):
    before = globbed.traces()

    program, *rest = (word.format(name) for word in words)
    done = globbed.command(program, *rest, "--out=json")

    assert done.code != 0, done.out
    assert f"a VM cannot be called '{name}': virt:hypervisors matches it" in done.out + done.err
    assert done.traceback == []
    assert globbed.traces() == before


@pytest.mark.second_nightly
def test_any_other_vm_is_made_as_ever(globbed):
    done = globbed.salt("hyper1", "virt.init", "web1", "1", "96", TINY, "seed=False")

    assert done.code == 0, done.out
    assert globbed.run("virt.purge", "web1").code == 0
