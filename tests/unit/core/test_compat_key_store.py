"""The key store reads keys as Salt does, in a tenth of the time."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from salt.utils.crypt import pem_finger
from saltvirt.core.crypto import keypair
from saltvirt.core.salt import compat

# Salt 3006 has no driver for keys.
needs_driver = pytest.mark.skipif(
    find_spec("salt.cache.localfs_key") is None, reason="this Salt has no driver for keys"
)
FOLDERS = ("minions", "minions_pre", "minions_rejected")


@needs_driver
@pytest.mark.parametrize(
    "folders", [(), *((folder,) for folder in FOLDERS), FOLDERS[:2], FOLDERS[::2], FOLDERS]
)
@pytest.mark.parametrize("name", ["web1", "a_b-c.d", "h\u00f6st"])
def test_a_key_is_read_as_salts_own_driver_reads_it(opts, folders, name):
    for folder in folders:
        (Path(opts["pki_dir"]) / folder / name).write_text(f"a key in {folder}\n")
    store = compat.KeyStore(opts)
    salts = store._cache.fetch("keys", name) or {}

    assert store.read(name) == (salts.get("state"), salts.get("pub"))


def test_a_file_that_is_no_key_counts_as_none(opts):
    folder = Path(opts["pki_dir"]) / "minions"
    (folder / "real").write_text("a key")
    (folder / "link").symlink_to(folder / "real")

    assert compat.KeyStore(opts).read("link") == (None, None)
    assert compat.KeyStore(opts).read(".hidden") == (None, None)


def put_waiting_key(opts, name, text):
    """Put a key among the waiting ones; return its fingerprint as ``virt.allow`` shows it."""
    (Path(opts["pki_dir"]) / "minions_pre" / name).write_text(text, newline="")
    return compat.KeyStore(opts).fingerprint(name)


def test_no_key_has_the_fingerprint_of_another_one(opts):
    """Salt uses a complete key in the first line, which is not in the fingerprint."""
    host_key, other_key = keypair.generate()[0], keypair.generate()[0]
    begin, *body, end = other_key.split("\n")[: other_key.strip().count("\n") + 1]
    planted_key = "\n".join(["".join([begin, *body, end]), *host_key.split("\n")[1:]])
    assert load_pem_public_key(planted_key.encode()) == load_pem_public_key(other_key.encode())

    assert put_waiting_key(opts, "host", host_key) != compat.UNREADABLE
    assert put_waiting_key(opts, "stranger", planted_key) == compat.UNREADABLE


@pytest.mark.parametrize("line", ["-----BEGIN PUBLIC KEY-----", "Proc-Type: 4,ENCRYPTED", "x" * 9])
def test_extra_text_in_a_key_does_not_change_its_fingerprint(opts, line):
    public = keypair.generate()[0]

    assert put_waiting_key(opts, "a", f"{line}\n{public}") == compat.UNREADABLE
    assert put_waiting_key(opts, "b", f"{public.strip()}\n{line}") == compat.UNREADABLE


@pytest.mark.parametrize("kind", ["PUBLIC KEY", "RSA PUBLIC KEY"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_a_key_has_the_fingerprint_that_its_host_shows(opts, tmp_path, kind, end, last):
    text = keypair.generate()[0].strip().replace("PUBLIC KEY", kind)
    key_file = tmp_path / "minion.pub"
    key_file.write_text(text)

    fingerprint = put_waiting_key(opts, "host", text.replace("\n", end) + last)

    assert fingerprint == pem_finger(str(key_file), sum_type=opts["hash_type"])
