"""The CA's commands report what succeeded beside failures, and refuse a wrong backup."""

from datetime import datetime, timedelta, timezone

import pytest
from saltvirt.ca.authorities import Authorities
from saltvirt.certificates.master import certificates
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import BadArgument, MasterError
from saltvirt.core.options.config import MasterSettings

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def cloud(opts):
    """A master."""
    return Cloud(opts=opts, settings=MasterSettings(), progress=lambda *_args, **_figures: None)


def test_the_error_of_a_silent_host_has_the_outcomes_of_the_others(cloud, monkeypatch):
    state = {"virt.keys": {"result": True, "comment": "renewed"}}
    replies = {
        "hyper1": minions.Reply(minion="hyper1", value=state),
        "hyper2": minions.Reply(minion="hyper2", is_missing=True),
    }
    monkeypatch.setattr(minions, "ask", lambda *_args, **_how: replies)

    with pytest.raises(MasterError, match="^hyper2: does not answer$") as caught:
        certificates.apply_keys(cloud, replies)

    assert caught.value.table == {
        "told": {"hyper1": "renewed"},
        "failed": {"hyper2": "does not answer"},
    }


def test_a_serial_can_be_revoked_again_until_all_hosts_have_replied(cloud, monkeypatch):
    serial = "0" * 32
    row = {"host": "hyper1", "purpose": "server", "serial": serial, "signer": "libvirt"}
    row["not_after"] = (NOW + timedelta(days=9)).isoformat()
    revoked = set()
    monkeypatch.setattr(Authorities, "issued", lambda _self: [dict(row)])
    monkeypatch.setattr(Authorities, "revoked", lambda _self: revoked)
    monkeypatch.setattr(
        Authorities, "revoke", lambda _self, rows, _now: revoked.update(map(serial_of, rows))
    )
    monkeypatch.setattr(inventory, "allowed_hosts", lambda _cloud: ["hyper1", "hyper2"])
    replies = {"hyper2": minions.Reply(minion="hyper2", is_missing=True)}
    monkeypatch.setattr(minions, "ask", lambda *_args, **_how: replies)

    for _attempt in range(2):
        with pytest.raises(
            MasterError, match=f"^{serial}: revoked, but not every .* again$"
        ) as failure:
            certificates.revoke(cloud, serial, NOW)
        assert failure.value.table["revoked"] == [serial] and revoked == {serial}

    state = {"virt.keys": {"result": True, "comment": "read"}}
    replies["hyper2"] = minions.Reply(minion="hyper2", value=state)
    expected = {"revoked": [serial], "told": {"hyper2": "read"}}
    assert certificates.revoke(cloud, serial, NOW) == expected
    revoked.clear()
    with pytest.raises(BadArgument, match="neither a host nor a serial"):
        certificates.revoke(cloud, serial, NOW + timedelta(days=10))


def serial_of(row):
    """Return a row's serial."""
    return row["serial"]


def test_a_binary_file_is_no_backup(opts, tmp_path):
    (tmp_path / "ca.backup").write_bytes(b"\x1f\x8b\xff\xfe")
    (tmp_path / "passphrase").write_text("correct horse battery")

    with pytest.raises(certificates.PkiRefused, match="nothing was restored: this is not a backup"):
        certificates.restore(opts, tmp_path / "ca.backup", tmp_path / "passphrase")
