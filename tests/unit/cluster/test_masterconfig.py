"""A master that lacks a configuration file, which Salt skips if it is broken, changes nothing."""

import json
import logging

import asloaded
import pytest
import salt.config
from saltvirt.ca import answer
from saltvirt.cluster import masterconfig, membership


@pytest.fixture
def master(tmp_path, opts):
    """A master's options as Salt reads them from its files, one of which is broken."""
    folder = tmp_path / "etc/master.d"
    folder.mkdir(parents=True)
    (tmp_path / "etc/master").write_text("virt: {timeout_s: 5}\n")
    broken_file = folder / "virt.conf"
    broken_file.write_text("password: s3cret\nvirt: {hypervisors: ['hyper*'\n")
    master_opts = dict(salt.config.master_config(str(tmp_path / "etc/master")))
    names = ("pki_dir", "cachedir", "sock_dir", "root_dir")
    master_opts |= {"user": "root", **{name: opts[name] for name in names}}
    assert master_opts["virt"] == {"timeout_s": 5}, "Salt goes on without it"
    return master_opts, broken_file


def runner(name, opts):
    """Return a runner of a master."""
    module = asloaded.module(f"_runners/{name}.py", **opts)
    module.__opts__, module.__context__ = opts, {}
    return module


@pytest.mark.parametrize(
    ("name", "function", "options"),
    [
        ("virt", "init", {"name": "web1", "cpu": 1, "mem": 512}),
        ("virt", "purge", {"name": "web1"}),
        ("virt_doctor", "doctor", {"fix": True}),
        ("virt_migrate", "evacuate", {"host": "hyper1"}),
        ("virt_migrate", "settle", {}),
        ("virt_key", "authorize", {"name": "web1", "host": "hyper1"}),
        ("virt_pki", "renew", {}),
        ("virt_image", "image_prune", {}),
    ],
)
def test_changes_are_refused(master, name, function, options):
    opts, broken_file = master

    answer = getattr(runner(name, opts), function)(**options)

    assert answer["retcode"] == 1
    assert answer["error"].startswith(
        f"nothing is changed by this master: {broken_file} cannot be read ("
    )
    assert answer["error"].endswith("), and may have virt: options; fix the file")
    assert "\n" not in answer["error"] and "s3cret" not in answer["error"]


def test_allowing_a_host_is_a_change_and_a_list_of_hosts_is_none(master):
    allow = runner("virt_allow", master[0]).allow

    assert "nothing is changed by this master" in allow("hyper1")["error"]
    assert "error" not in allow()


def test_reading_runners_work_and_warn(master, caplog):
    caplog.set_level(logging.WARNING)

    assert "error" not in runner("virt_pki", master[0]).list_()
    assert f"{master[1]} cannot be read" in caplog.text


def test_a_host_can_be_shut_out(master):
    answer = runner("virt_allow", master[0]).disallow("hyper1")

    assert "nothing is changed" not in str(answer.get("error"))


@pytest.mark.parametrize(
    ("function", "options", "is_reading"),
    [
        ("virt.init", {"dry_run": True}, True),
        ("virt.init", {}, False),
        ("virt.doctor", {}, True),
        ("virt.doctor", {"fix": True}, False),
        ("virt.query", {}, True),
        ("virt.host_lost", {"host": "hyper1"}, True),
        ("virt.status", {}, True),
        ("virt.new", {}, False),
    ],
)
def test_which_calls_only_read(function, options, is_reading):
    assert masterconfig.is_read_only(function, options) is is_reading


def test_a_daemon_that_has_read_the_file_before_works(master):
    opts, broken_file = master
    opts["virt"] = {"timeout_s": 5, "hypervisors": ["hyper*"]}

    assert masterconfig.explain_missing(opts) is None
    opts["virt"] = {"timeout_s": 5}
    assert masterconfig.explain_missing(opts).startswith(str(broken_file))
    broken_file.write_text("virt: {hypervisors: ['hyper*']}\n")
    assert masterconfig.explain_missing(opts) is None


@pytest.fixture
def allowed_host(master):
    """Put hyper1 on the list of virt.allow, which needs no configuration file."""
    folder = membership.folder(master[0])
    folder.mkdir()
    stored_list = {"version": 1, "allowed": ["hyper1"], "disallowed": []}
    (folder / "hypervisors.json").write_text(json.dumps(stored_list))


def test_no_certificate_is_signed_but_revocation_lists_are_sent(master, allowed_host):
    module = asloaded.module("_pillar/libvirt.py")
    module.__opts__ = {**master[0], "grains": {"id": "hyper1"}}

    def asked(minion_id, **certificates):
        options = {"certificates": certificates, "version": answer.VERSION}
        return module.ext_pillar(minion_id, {}, **options)["libvirt_pki"]

    assert asked("hyper1", server="-----BEGIN")["error"].startswith("nothing is changed by this")
    assert "trust" in asked("hyper1")
    assert str(master[1]) not in asked("web1", server="-----BEGIN")["error"]


def test_no_key_is_accepted_under_a_name_that_may_be_a_hosts(master, allowed_host):
    module = asloaded.module("_pillar/virtkey.py")
    module.__opts__ = master[0]

    for options in ({}, {"key": "-----BEGIN", "token": "t"}):
        (error,) = module.ext_pillar("hyper1", {}, name="hyper9", **options)["virtkey"].values()
        assert error.startswith("nothing is changed by this master: ")
        (error,) = module.ext_pillar("web1", {}, name="hyper9", **options)["virtkey"].values()
        assert str(master[1]) not in str(error), "a guest is not told"
