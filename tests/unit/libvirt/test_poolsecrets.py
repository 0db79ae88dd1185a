"""The passwords of pools: where they are stored, and where they never appear."""

import libvirt
import pytest
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.libvirt.storage import pools, poolsecrets, poolstates
from saltvirt.xml import parse
from saltvirt.xml.storage import secret

PASSWORD = "c2VjcmV0d29yZA=="


class Secrets:
    """A libvirt that keeps secrets, which the test driver does not; pools are the driver's own."""

    def __init__(self, conn):
        self.conn, self.kept = conn, {}

    def __getattr__(self, name):
        return getattr(self.conn, name)

    def secretLookupByUsage(self, kind, usage):
        if (kind, usage) not in self.kept:
            error = libvirt.libvirtError("no secret")
            error.err = (libvirt.VIR_ERR_NO_SECRET, 0, "no secret", 0, "", "", "", 0, 0)
            raise error
        return self.kept[kind, usage]

    def secretDefineXML(self, text, _flags):
        definition = secret.read(parse(text))
        kind = getattr(libvirt, f"VIR_SECRET_USAGE_TYPE_{definition.kind.upper()}")
        new_secret = Secret(self, (kind, definition.usage), text)
        self.kept[kind, definition.usage] = new_secret
        return new_secret


class Secret:
    """A secret that :class:`Secrets` keeps."""

    def __init__(self, host, key, text):
        self.host, self.key, self.text, self.value = host, key, text, None

    def setValue(self, value, _flags):
        self.value = value

    def XMLDesc(self, _flags):
        return self.text

    def undefine(self):
        del self.host.kept[self.key]


CEPH = {"hosts": ["a"], "name": "x", "auth": {"username": "admin", "password": PASSWORD}}
CHAP = {"hosts": ["a"], "devices": ["iqn.x:y"], "auth": {"username": "u", "password": "hush"}}


@pytest.mark.parametrize(
    ("ptype", "target", "source", "kind", "value"),
    [
        ("rbd", None, CEPH, libvirt.VIR_SECRET_USAGE_TYPE_CEPH, b"secretword"),
        ("iscsi", "/dev/x", CHAP, libvirt.VIR_SECRET_USAGE_TYPE_ISCSI, b"hush"),
    ],
)
def test_a_password_becomes_the_secret_of_3006_and_goes_with_its_pool(
    conn, ptype, target, source, kind, value
):
    host, caller_source = Secrets(conn), {**source, "auth": dict(source["auth"])}
    request = poolstates.PoolStateRequest(
        name="p1", ptype=ptype, target=target, source=caller_source
    )

    plan = poolstates.plan(host, request)
    assert host.kept == {} and "hush" not in repr(plan) and PASSWORD not in repr((plan, request))
    poolstates.apply(host, plan)

    assert {key: entry.value for key, entry in host.kept.items()} == {(kind, "pool_p1"): value}
    assert caller_source == {
        **source,
        "auth": dict(source["auth"]),
    }, "the caller's own are not changed"
    assert poolstates.plan(host, request).parts == []
    # A missing secret is made again, and reported.
    host.kept.clear()
    plan = poolstates.plan(host, request)
    assert plan.parts == ["updated"]
    poolstates.apply(host, plan)
    assert poolstates.plan(host, request).parts == []
    pools.undefine(host, "p1")
    assert host.kept == {}


def test_a_transient_pool_whose_name_is_taken_leaves_the_other_ones_password(conn):
    host = Secrets(conn)
    pools.define(
        host, pools.request_from_call("p1", "rbd", source=CEPH), is_transient=False, starts=True
    )
    wrong_source = {**CEPH, "auth": {"username": "admin", "password": "d3Jvbmc="}}

    with pytest.raises(StorageError, match="there is a pool .p1. already"):
        pools.define(
            host,
            pools.request_from_call("p1", "rbd", source=wrong_source),
            is_transient=True,
            starts=True,
        )

    assert [entry.value for entry in host.kept.values()] == [b"secretword"]


def test_another_password_is_put_where_the_pool_has_its_own(conn):
    host = Secrets(conn)
    request = pools.request_from_call("p1", "rbd", source=CEPH)
    pools.define(host, request, is_transient=False, starts=False)

    other_source = {**CEPH, "auth": {"username": "admin", "password": "b3RoZXI="}}
    assert (
        pools.update(host, pools.request_from_call("p1", "rbd", source=other_source), is_test=False)
        is False
    )

    assert [entry.value for entry in host.kept.values()] == [b"other"]


def test_a_secret_of_another_owner_stays(conn):
    host = Secrets(conn)
    usage = {"type": "usage", "value": "mine"}
    host.secretDefineXML("<secret><usage type='ceph'><name>mine</name></usage></secret>", 0)
    source = {**CEPH, "auth": {"type": "ceph", "username": "admin", "secret": usage}}
    pools.define(
        host, pools.request_from_call("p1", "rbd", source=source), is_transient=False, starts=False
    )

    pools.undefine(host, "p1")

    assert len(host.kept) == 1


def test_a_pool_that_cannot_be_defined_leaves_no_secret(conn):
    host = Secrets(conn)
    request = pools.request_from_call("default-pool", "rbd", source=CEPH)

    with pytest.raises(libvirt.libvirtError):
        pools.define(host, request, is_transient=False, starts=False)
    assert host.kept == {}


@pytest.mark.parametrize("had_secret", [True, False])
def test_a_new_pool_that_fails_leaves_the_secret_that_was_there_before(
    conn, monkeypatch, had_secret
):
    host = Secrets(conn)
    if had_secret:
        host.secretDefineXML("<secret><usage type='ceph'><name>pool_p1</name></usage></secret>", 0)
    secrets_before = list(host.kept)

    def fails(*_args):
        raise StorageError("no start")

    monkeypatch.setattr(poolstates, "_finish", fails)
    plan = poolstates.plan(host, poolstates.PoolStateRequest(name="p1", ptype="rbd", source=CEPH))
    with pytest.raises(StorageError, match="no start"):
        poolstates.apply(host, plan)

    assert list(host.kept) == secrets_before and pools.find(host, "p1") is None


def test_a_key_that_is_no_base64_is_refused_unseen():
    with pytest.raises(BadArgument, match="is not base64") as raised:
        poolsecrets.encode_password("rbd", "hush, hush")
    assert "hush" not in str(raised.value) and raised.value.__cause__ is None
    assert raised.value.__context__ is None


def test_a_source_that_is_no_mapping_is_refused_unseen(applied):
    (answer, *_replies) = applied("pool_defined", "p1", target="/srv", source=[CHAP])

    assert answer["result"] is False and answer["comment"] == "source: is not a mapping"
