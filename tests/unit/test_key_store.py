"""Keys are read as Salt reads them, in a tenth of its time."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from saltvirt import compat

# Salt 3006 reads its keys itself.
needs_driver = pytest.mark.skipif(
    find_spec("salt.cache.localfs_key") is None, reason="this Salt has no driver for keys"
)
FOLDERS = ("minions", "minions_pre", "minions_rejected")


@needs_driver
@pytest.mark.parametrize(
    "there", [(), *((one,) for one in FOLDERS), FOLDERS[:2], FOLDERS[::2], FOLDERS]
)
@pytest.mark.parametrize("name", ["web1", "a_b-c.d", "h\u00f6st"])
def test_a_key_is_read_as_salts_own_driver_reads_it(opts, there, name):
    for folder in there:
        (Path(opts["pki_dir"]) / folder / name).write_text(f"a key in {folder}\n")
    store = compat.KeyStore(opts)
    salts = store._cache.fetch("keys", name) or {}

    assert store.read(name) == (salts.get("state"), salts.get("pub"))


def test_what_is_no_key_file_is_no_key(opts):
    folder = Path(opts["pki_dir"]) / "minions"
    (folder / "real").write_text("a key")
    (folder / "link").symlink_to(folder / "real")

    assert compat.KeyStore(opts).read("link") == (None, None)
    assert compat.KeyStore(opts).read(".hidden") == (None, None)
