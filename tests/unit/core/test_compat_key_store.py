"""Keys are read as Salt reads them, in a tenth of its time."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from salt.utils.crypt import pem_finger
from saltvirt.core.crypto import keypair
from saltvirt.core.salt import compat

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


def waiting(opts, name, text):
    """Have a key wait; return its fingerprint as ``virt.allow`` shows it."""
    (Path(opts["pki_dir"]) / "minions_pre" / name).write_text(text, newline="")
    return compat.KeyStore(opts).fingerprint(name)


def test_no_key_has_the_fingerprint_of_another_one(opts):
    """Salt believes the key that is whole within the first line, which no fingerprint has."""
    hosts, others = keypair.generate()[0], keypair.generate()[0]
    begin, *body, end = others.split("\n")[: others.strip().count("\n") + 1]
    planted = "\n".join(["".join([begin, *body, end]), *hosts.split("\n")[1:]])
    assert load_pem_public_key(planted.encode()) == load_pem_public_key(others.encode())

    assert waiting(opts, "host", hosts) != compat.UNREADABLE
    assert waiting(opts, "stranger", planted) == compat.UNREADABLE


@pytest.mark.parametrize("line", ["-----BEGIN PUBLIC KEY-----", "Proc-Type: 4,ENCRYPTED", "x" * 9])
def test_a_key_with_more_than_a_key_before_its_end_has_no_other_fingerprint(opts, line):
    public = keypair.generate()[0]

    assert waiting(opts, "a", f"{line}\n{public}") == compat.UNREADABLE
    assert waiting(opts, "b", f"{public.strip()}\n{line}") == compat.UNREADABLE


@pytest.mark.parametrize("kind", ["PUBLIC KEY", "RSA PUBLIC KEY"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_a_key_has_the_fingerprint_that_its_host_shows(opts, tmp_path, kind, end, last):
    text = keypair.generate()[0].strip().replace("PUBLIC KEY", kind)
    own = tmp_path / "minion.pub"
    own.write_text(text)

    shown = waiting(opts, "host", text.replace("\n", end) + last)

    assert shown == pem_finger(str(own), sum_type=opts["hash_type"])
