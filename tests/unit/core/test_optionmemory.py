"""The virt: options that a host remembers from its last good configuration, grains and pillar."""

import json
import logging
import os
import stat

import pytest
import yaml
from saltvirt.core.errors import BadConfig
from saltvirt.core.options import config, optionmemory, optionstrength

GOOD = {"trash_days": 14, "shared_paths": ["/srv/shared"], "images": "/srv/vm", "state_dir": "/s"}
GOOD |= {"storagepool": "fast", "reserve_mib": 4096, "cpu_ratio": 2.0, "tags": {"rack": "r7"}}
ERRORS = {"_errors": ["Rendering SLS 'hypervisor' failed"]}


@pytest.fixture
def minion(tmp_path):
    """Options of a minion that has a master; nothing is configured in its files."""
    (tmp_path / "etc/minion.d").mkdir(parents=True)
    (tmp_path / "etc/minion").write_text("id: hyper1\n")
    return {
        "id": "hyper1",
        "root_dir": str(tmp_path / "root"),
        "conf_file": str(tmp_path / "etc/minion"),
        "default_include": "minion.d/*.conf",
        "file_client": "remote",
    }


def memory_file(minion):
    """Return the path of the host's file."""
    (path,) = (optionmemory.Path(minion["root_dir"]) / optionmemory.FOLDER).iterdir()
    return path


def options(minion, pillar, grains=None):
    """Return the options that apply, as plain data."""
    settings = config.host_settings(minion, pillar, grains or {})
    return {name: getattr(settings, name) for name in GOOD}


@pytest.mark.parametrize(
    "pillar",
    [
        ERRORS,
        # Other files of the pillar have defaults that this one would override.
        {"virt": {"trash_days": 0, "images": "/other"}, **ERRORS},
        {"virt.trash_days": 0, **ERRORS},
        {},
        {"schedule": {}},
    ],
    ids=str,
)
def test_options_of_the_last_good_pillar_apply(minion, pillar):
    assert options(minion, {"virt": GOOD}) == GOOD

    assert options(minion, pillar) == GOOD
    assert options(minion, pillar) == GOOD, "and it is still remembered"


def test_salt_call_local_has_the_options_of_the_masters_pillar(minion):
    options(minion, {"virt": GOOD})
    local = {**minion, "file_client": "local"}

    for pillar in ({}, {"virt": {"trash_days": 0}}):
        assert options(local, pillar) == GOOD
        assert config.effective_sources(local, pillar, {}).refusal is None
    (notice,) = config.effective_sources(local, {}, {}).notices
    assert notice.startswith("this call has no pillar of the master (--local); these hold")


def test_the_pillar_of_a_minion_without_a_master_is_its_own(minion, tmp_path):
    (tmp_path / "etc/minion.d/local.conf").write_text("file_client: local\n")
    local = {**minion, "file_client": "local"}
    options(local, {"virt": GOOD})

    assert options(local, {"virt": {"trash_days": 3}})["trash_days"] == 3


def test_an_option_removed_from_a_good_pillar_is_gone_and_reported(minion, caplog):
    options(minion, {"virt": GOOD})
    remaining = {name: value for name, value in GOOD.items() if name != "trash_days"}

    assert options(minion, {"virt": remaining})["trash_days"] == 7
    assert caplog.messages == [
        "virt:trash_days protects less than before: it was 14, and is not set any more"
    ]
    # Only the first call that changes something reports it, too.
    for is_change, expected in ((False, 0), (True, 1), (True, 0)):
        notices = config.effective_sources(minion, {"virt": remaining}, {}, is_change).notices
        assert len(notices) == expected
        assert all(line.startswith("virt:trash_days was 14 until 20") for line in notices)
    assert options(minion, ERRORS)["trash_days"] == 7


@pytest.mark.parametrize("pillar", [{"virt": {}}, {"virt": None}, {"role": "vm-host"}], ids=str)
def test_a_good_pillar_without_options_drops_all(minion, caplog, pillar):
    options(minion, {"virt": GOOD})

    settings = options(minion, pillar)

    assert (settings["trash_days"], settings["shared_paths"]) == (7, [])
    assert 'virt:shared_paths protects less than before: it was ["/srv/shared"]' in caplog.text


def test_an_empty_pillar_is_reported(minion):
    options(minion, {"virt": GOOD})

    (notice,) = config.effective_sources(minion, {}, {}).notices

    assert notice.startswith(
        "the pillar of this host is empty (to drop options, write there: virt: {}); these hold as "
    )


def test_the_pillar_of_another_environment_is_not_remembered(minion, tmp_path):
    options(minion, {"virt": GOOD})
    dev_minion = {**minion, "pillarenv": "dev"}

    settings = options(dev_minion, {"virt": {"reserve_mib": 1}, "role": "try"})

    assert settings == {**GOOD, "reserve_mib": 1}
    (notice,) = config.effective_sources(dev_minion, {"role": "try"}, {}).notices
    assert notice.startswith("this call has the pillar of another environment (pillarenv); these ")
    assert options(minion, ERRORS) == GOOD
    # With the environment in the minion's file the pillar is the host's own.
    (tmp_path / "etc/minion.d/env.conf").write_text("pillarenv: dev\n")
    assert options(dev_minion, {"virt": {"trash_days": 3}})["trash_days"] == 3
    assert options(dev_minion, ERRORS)["images"] == "/srv/salt-images"


def test_options_moved_to_the_minions_file_come_from_the_file(minion):
    options(minion, {"virt": GOOD})
    configured = {**minion, "virt": {**GOOD, "trash_days": 30}}

    assert options(configured, {})["trash_days"] == 30
    assert config.effective_sources(configured, {}, {}).notices == ()
    del configured["virt"]["trash_days"]
    assert options(configured, {})["trash_days"] == 7, "the pillar's is forgotten"


def test_a_new_value_of_a_good_pillar_counts_at_once(minion):
    options(minion, {"virt": GOOD})
    new_values = {"trash_days": 30, "shared_paths": ["/srv/shared", "/srv/more"]}

    assert options(minion, {"virt": {**GOOD, **new_values}}) == {**GOOD, **new_values}


@pytest.mark.parametrize("broken", ["virt: {trash_days: 7", "virt: [", "- a\n- b\n"])
def test_a_broken_file_of_the_minion_removes_no_options(minion, tmp_path, broken):
    path = tmp_path / "etc/minion.d/virt.conf"
    path.write_text(yaml.safe_dump({"virt": GOOD}))
    configured = {**minion, "virt": GOOD}
    assert options(configured, {}) == GOOD
    path.write_text(broken)

    # salt-call skips the broken file.
    assert options(minion, {}) == GOOD
    standing = config.effective_sources(minion, {}, {})
    assert standing.refusal.startswith(f"nothing is changed on this host: {path} ")
    # The minion's daemon has read the file before.
    assert config.effective_sources(configured, {}, {}).refusal is None
    path.unlink()
    assert config.effective_sources(minion, {}, {}).refusal is None


def test_a_broken_file_of_grains_removes_no_options(minion, tmp_path):
    path = tmp_path / "etc/grains"
    path.write_text(yaml.safe_dump({"virt": GOOD}))
    assert options(minion, {}, {"virt": GOOD, "os": "Debian"}) == GOOD
    path.write_text("virt: {trash_days: 7")

    assert options(minion, {}, {"os": "Debian"}) == GOOD
    refusal = config.effective_sources(minion, {}, {"os": "Debian"}).refusal
    assert refusal.startswith(f"nothing is changed on this host: {path} cannot be read")


def test_nested_includes_are_read(minion, tmp_path):
    (tmp_path / "etc/minion").write_text("include: more/a.conf\n")
    (tmp_path / "etc/more").mkdir()
    (tmp_path / "etc/more/a.conf").write_text("include: b.conf\n")
    (tmp_path / "etc/more/b.conf").write_text("virt: [")

    refusal = config.effective_sources({**minion, "include": ["more/a.conf"]}, {}, {}).refusal

    assert str(tmp_path / "etc/more/b.conf") in refusal


def test_the_file_is_private_and_has_no_secrets(minion):
    virt = {
        "connection": {"uri": "qemu:///system", "auth": {"username": "u", "password": "s3cret"}},
        "vnc": {"listen": "0.0.0.0", "password": "s3cret"},
        "seed": {"user_data": {"chpasswd": "s3cret"}},
        "disk": {"big": [{"system": {"image": "https://u:s3cret@host/x"}}]},
    }
    config.host_settings(minion, {"virt": virt}, {})
    path = memory_file(minion)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert "s3cret" not in path.read_text()
    settings = config.host_settings(minion, ERRORS, {})
    assert (settings.uri, settings.username) == ("qemu:///system", None)
    # The readable part of the pillar is used.
    partial = config.host_settings(minion, {"virt": virt, **ERRORS}, {})
    assert (partial.uri, partial.password) == ("qemu:///system", "s3cret")
    assert partial.vnc == virt["vnc"]
    # Without its password a display would be open to all.
    with pytest.raises(BadConfig, match="option virt:vnc: its password is not remembered"):
        _ = settings.vnc


def test_an_option_is_remembered_unless_there_is_a_reason_not_to(minion):
    names = set(config.effective_sources.__globals__["_HOST"])

    assert set(optionmemory.NOT_REMEMBERED) <= names
    values = {name: "x" for name in names - {"connection", "vnc"}}
    config.host_settings(minion, {"virt": values}, {})

    remembered_values = json.loads(memory_file(minion).read_text())["sections"]["pillar"]
    assert set(remembered_values) == names - set(optionmemory.NOT_REMEMBERED) - {
        "connection",
        "vnc",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "cannot be read"), ('{"version": 1}', "KeyError"), ('{"version": 9}', "version 9")],
)
def test_an_unreadable_file_does_not_count_as_empty(minion, content, reason):
    options(minion, {"virt": GOOD})
    path = memory_file(minion)
    path.write_text(content)

    assert (
        config.effective_sources(minion, {"virt": GOOD}, {}).refusal is None
    ), "the pillar is good"
    path.write_text(content)
    refusal = config.effective_sources({**minion, "file_client": "local"}, {}, {}).refusal
    assert refusal.startswith(f"nothing is changed on this host: {path} ")
    assert reason in refusal


def test_a_file_of_a_newer_release_is_left_alone(minion):
    options(minion, {"virt": GOOD})
    path = memory_file(minion)
    path.write_text('{"version": 9}')

    options(minion, {"virt": GOOD})

    assert path.read_text() == '{"version": 9}'


def test_a_full_disk_stops_nothing(minion, small_disk, caplog):
    minion["root_dir"] = str(small_disk)
    with open(small_disk / "all", "wb") as full, pytest.raises(OSError, match="No space"):
        while True:
            full.write(bytes(1 << 20))
            full.flush()
            os.fsync(full.fileno())

    assert options(minion, {"virt": GOOD}) == GOOD
    assert {record.levelname for record in caplog.records} <= {"DEBUG"}, "a look is not told"
    config.effective_sources(minion, {"virt": GOOD}, {}, is_change=True)
    assert "are not remembered in" in caplog.text


def test_the_file_is_on_the_disk_before_the_call_goes_on(minion, synced):
    options(minion, {"virt": GOOD})

    (name, content), *folders = synced
    assert name.endswith("hyper1.json.part")
    assert json.loads(content)["sections"]["pillar"]["trash_days"] == 14
    assert ("salt-virt-options", ["hyper1.json"]) in folders


def test_an_unchanged_pillar_is_not_written_again(minion, synced):
    options(minion, {"virt": GOOD})
    synced.clear()

    options(minion, {"virt": dict(reversed(GOOD.items()))})

    assert synced == []


def test_the_first_options_of_a_host_are_no_change(minion, caplog):
    caplog.set_level(logging.WARNING)

    options(minion, {"virt": {"reserve_mib": 0, "cpu_ratio": 9.0}})

    assert caplog.messages == []


def test_salt_cloud_on_a_host_has_the_options_of_its_minion(minion):
    options(minion, {"virt": GOOD})
    cloud = {"id": "hyper1_master", "root_dir": minion["root_dir"], "virt": {"images": "/own"}}

    settings = config.host_settings(cloud, connection="qemu:///system")

    assert (settings.images, settings.trash_days) == ("/own", 14)
    assert settings.shared_paths == ["/srv/shared"]


@pytest.mark.parametrize(
    ("option", "old_value", "new_value", "is_weaker"),
    [
        ("trash_days", 7, 3, True),
        ("trash_days", 14, None, True),
        ("trash_days", 7, None, False),
        ("trash_days", 0, None, False),
        ("trash_days", None, 0, True),
        ("trash_days", 7, 30, False),
        ("trash_days", 7, "soon", False),
        ("reserve_mib", 512, None, False),
        ("disk_reserve_mib", 9000, None, True),
        ("memory_ratio", 1.0, 1.5, True),
        ("cpu_ratio", 2, None, True),
        ("cpu_ratio", 8, None, False),
        ("image_max_gib", 10, None, True),
        ("shared_paths", ["/a", "/b"], ["/b"], True),
        ("shared_paths", ["/a"], ["/a", "/b"], False),
        ("own_paths", ["/a"], ["/a", "/b"], True),
        ("own_paths", ["/a"], None, False),
        ("backing_paths", ["/a"], ["/a", "/b"], True),
        ("backing_paths", ["/a"], None, False),
        ("images", "/a", "/b", True),
        ("images", None, "/b", False),
        ("nic", {"a": []}, {"b": []}, False),
        ("nic", {"a": []}, None, True),
        ("compat", "3006", None, True),
    ],
)
def test_which_changes_of_options_weaken_protection(option, old_value, new_value, is_weaker):
    assert optionstrength.is_weaker(option, old_value, new_value) is is_weaker
