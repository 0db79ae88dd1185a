"""Files of the trash are brought back to where they were."""

from pathlib import Path

import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.storage import ownermark, trash
from test_trash import DISKS, entry, names, purged


def test_what_is_brought_back_is_where_it_was_and_no_longer_marked(keeping):
    purged(keeping)

    said = trash.restore(keeping.settings, entry(keeping))

    images = Path(keeping.settings.images)
    assert said["files"] == [str(images / name) for name in DISKS]
    assert keeping.files() == DISKS
    assert [ownermark.read_owner(images / name) for name in DISKS] == [None, None]
    assert trash.list_entries(keeping.settings) == {}
    assert not (images / trash.FOLDER).exists()


def test_the_pools_of_what_is_brought_back_look_again(keeping, monkeypatch):
    purged(keeping)
    looked = []
    # libvirt's test driver has no files to look at.
    monkeypatch.setattr(
        libvirt.virStoragePool, "refresh", lambda one, _flags: looked.append(one.name())
    )
    with keeping.libvirt() as conn:
        for name, path in (("images", keeping.settings.images), ("other", "/srv/other")):
            target = f"<target><path>{path}</path></target>"
            conn.storagePoolCreateXML(f"<pool type='dir'><name>{name}</name>{target}</pool>")

        trash.restore(keeping.settings, entry(keeping))

    assert looked == ["images"]


def test_nothing_is_brought_back_over_a_file(keeping):
    purged(keeping)
    mine = Path(keeping.settings.images) / DISKS[1]
    mine.write_text("mine")

    with pytest.raises(StorageError, match="is there already"):
        trash.restore(keeping.settings, entry(keeping))

    assert mine.read_text() == "mine"
    assert names(keeping) == DISKS
