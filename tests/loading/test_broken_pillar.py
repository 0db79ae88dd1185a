"""A pillar that Salt cannot render, by salt-call of both lines: nothing is changed until it can."""

import json

import pytest
from loadkit import SALT_LINES

GOOD = {
    "connection": {"uri": "test:///default"},
    "trash_days": 14,
    "shared_paths": ["/srv/shared"],
    "disk": {"big": [{"system": {"size": 20480}}]},
}
BROKEN = "{% if %}\n"


@pytest.fixture(scope="module", params=SALT_LINES)
def minion(request, base, place):
    """A minion without a master that has the bundle, and a good pillar."""
    salt = place(base(request.param))
    salt.answer("saltutil.sync_all")
    for folder in ("images", "state"):
        GOOD[{"images": "images", "state": "state_dir"}[folder]] = str(salt.folder / folder)
    pillar = salt.folder / "pillar"
    pillar.mkdir()
    (pillar / "top.sls").write_text("base: {'*': [hypervisor]}\n")
    return salt


@pytest.fixture
def call(minion):
    """Return a function: salt-call with what the pillar has now, or none."""
    (minion.folder / "pillar/hypervisor.sls").write_text(json.dumps({"virt": GOOD}))
    root = f"--pillar-root={minion.folder}/pillar"
    return lambda *words: minion.call(root, *words)


def spoil(minion):
    """Have the pillar not be rendered any more."""
    path = minion.folder / "pillar/hypervisor.sls"
    path.write_text(path.read_text() + BROKEN)


def remembered(minion):
    """Return what the host remembers of its pillar."""
    path = minion.folder / "var/lib/salt-virt-options/m1.json"
    return json.loads(path.read_text())["sections"]["pillar"]


def test_a_broken_pillar_stops_what_changes_something_and_nothing_else(minion, call):
    assert call("virt.list_domains").returncode == 0
    assert remembered(minion)["trash_days"] == 14
    spoil(minion)

    refused = call("virt.purge", "test")

    assert refused.returncode == 1
    said = refused.stdout + refused.stderr
    # One line, beside the traceback that Salt logs of the pillar.
    (line,) = [line for line in said.splitlines() if "nothing is changed" in line]
    assert "nothing is changed on this host while its pillar has errors (" in line
    assert line.endswith("; fix the pillar, then run: salt m1 saltutil.refresh_pillar")
    assert remembered(minion)["trash_days"] == 14
    looked = call("virt.list_domains")
    assert json.loads(looked.stdout)["local"] == ["test"], "libvirt is the remembered one"
    assert json.loads(call("virt.audit").stdout)["local"]["wrong_options"]


def test_a_state_that_is_forced_is_refused_and_test_warns(minion, call):
    call("virt.list_domains")
    spoil(minion)
    (minion.folder / "srv").mkdir(exist_ok=True)
    (minion.folder / "srv/stops.sls").write_text("test: {virt.powered_off: []}\n")
    # Without it Salt itself refuses.
    state = ("state.apply", "stops", "force=True")

    (refused,) = json.loads(call(*state).stdout)["local"].values()
    (tried,) = json.loads(call(*state, "test=True").stdout)["local"].values()

    begin = "nothing is changed on this host while its pillar has errors ("
    assert (refused["result"], refused["changes"]) == (False, {})
    assert refused["comment"].startswith(begin)
    assert (tried["result"], bool(tried["changes"])) == (None, True)
    assert tried["warnings"][0].startswith(begin)


def test_an_option_that_is_taken_out_is_dropped_and_the_log_says_so(minion, call):
    call("virt.list_domains")
    left = {name: value for name, value in GOOD.items() if name != "trash_days"}
    (minion.folder / "pillar/hypervisor.sls").write_text(json.dumps({"virt": left}))

    done = call("virt.list_domains")

    assert "virt:trash_days protects less than before: it was 14, and is not set" in done.stderr
    assert "trash_days" not in remembered(minion)
    again = call("virt.start", "test")
    assert again.returncode == 0
    assert "virt:trash_days was 14 until 20" in again.stderr


def test_local_calls_of_a_minion_that_has_a_master_have_its_options(minion, call):
    call("virt.list_domains")
    path = minion.etc / "minion"
    configured = json.loads(path.read_text())
    path.write_text(json.dumps({**configured, "file_client": "remote"}))
    try:
        done = minion.call("virt.doctor_facts")
    finally:
        path.write_text(json.dumps(configured))

    assert done.returncode == 0, done.stderr
    assert remembered(minion)["trash_days"] == 14


def test_a_broken_file_of_the_minion_is_no_missing_one(minion, call):
    folder = minion.etc / "minion.d"
    folder.mkdir(exist_ok=True)
    path = folder / "virt.conf"
    path.write_text(json.dumps({"virt": {"reserve_mib": 4096}}))
    call("virt.list_domains")
    path.write_text('{"virt": {"reserve_mib": 4096')

    refused = call("virt.stop", "test")
    path.unlink()

    assert refused.returncode == 1
    assert f"nothing is changed on this host: {path} cannot be read (line 2: " in refused.stderr
    assert call("virt.stop", "test").returncode == 0
