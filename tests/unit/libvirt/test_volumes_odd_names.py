"""A volume with a name that is not UTF-8 hides no other volume; its bytes are shown escaped."""

import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import cloudvms
from saltvirt.libvirt.storage import anybytes, poolstates, volumes
from saltvirt.storage import writeguard

POOL = "default-pool"
SHOWN = "o\\xffd"


@pytest.fixture
def odd_conn(conn, monkeypatch):
    """
    A pool with a volume ``ok`` and one that libvirt-python cannot name.

    The test driver takes no such name; a file of that name in a real pool has libvirt-python raise
    the same errors, with the same bytes.
    """
    pool = conn.storagePoolLookupByName(POOL)
    for name in ("ok", "odd"):
        pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>")

    def raw(read):
        def read_raw(*args):
            return read(*args).encode().replace(b"odd", b"o\xffd").decode()

        return read_raw

    for name in ("name", "path", "key", "XMLDesc"):
        monkeypatch.setattr(libvirt.virStorageVol, name, raw(getattr(libvirt.virStorageVol, name)))
    listed = libvirt.virStoragePool.listVolumes
    monkeypatch.setattr(
        libvirt.virStoragePool,
        "listVolumes",
        lambda pool: raw(lambda: " ".join(listed(pool)))().split(),
    )
    return conn


def test_all_volumes_are_listed(odd_conn):
    assert sorted(volumes.names(odd_conn, POOL)) == [SHOWN, "ok"]
    infos = volumes.infos(odd_conn)[POOL]
    assert set(infos) == {"ok", SHOWN}
    assert infos[SHOWN]["path"].endswith(SHOWN)
    assert set(volumes.infos(odd_conn, POOL, "ok")[POOL]) == {"ok"}


def test_the_users_of_the_other_volumes_are_known(odd_conn):
    odd_conn.defineXML(
        "<domain type='test'><name>d1</name><memory>65536</memory><os><type>hvm</type></os>"
        f"<devices><disk type='volume' device='disk'><source pool='{POOL}' volume='ok'/>"
        "<target dev='vda'/></disk></devices></domain>"
    ).create()

    assert volumes.used_by_running(odd_conn, POOL) == {"ok": "d1"}
    assert volumes.infos(odd_conn)[POOL]["ok"]["used_by"] == ["d1"]


def test_a_pool_with_one_is_not_purged_by_half(odd_conn):
    with pytest.raises(StorageError, match=r"names are not UTF-8 \(o\\xffd\), which libvirt"):
        poolstates.plan_deletion(odd_conn, POOL, purges=True)

    assert "ok" in volumes.names(odd_conn, POOL)
    assert poolstates.plan_deletion(odd_conn, POOL, purges=False).volumes == []


def test_the_name_that_is_shown_is_no_volumes(odd_conn):
    assert volumes.find(odd_conn, POOL, SHOWN) is None


def test_copies_and_clones_look_at_the_others(odd_conn):
    assert list(writeguard._devices(odd_conn)) == []
    assert any(path.endswith("/ok") for path in cloudvms._volumes(odd_conn))


@pytest.mark.parametrize("char", ["\x01", "\x1f", "\ufffe", "\uffff"])
def test_a_character_that_no_xml_can_hold_is_escaped(char):
    class Volume:
        def XMLDesc(self, _flags):
            return f"<volume><name>a{char}b</name></volume>"

    assert anybytes.read_volume_xml(Volume()).findtext("name") == f"a\\x{ord(char):02x}b"
