"""The worker gives a guest's minion another id, and changes nothing else."""

import sys
from types import SimpleNamespace

import pytest
import yaml
from saltvirt.core.errors import SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding import write
from saltvirt.seeding.offline.appliance import DiskRefused

CONFIG = "etc/salt/minion.d/zz-salt-virt.conf"
KEY = "-----BEGIN PUBLIC KEY-----\nABC\n-----END PUBLIC KEY-----"


@pytest.fixture
def root(tmp_path):
    """A guest's root, as virt.init seeds it."""
    root = tmp_path / "root"
    texts = {
        "usr/bin/salt-minion": "",
        "etc/salt/minion_id": "web1.example.org\n",
        CONFIG: "grains:\n  id: other\nid: web1.example.org\nmaster: m\n",
        "etc/hostname": "web1\n",
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 web1.example.org web1\n10.0.0.9 web1\n",
        "etc/machine-id": "0123\n",
        "etc/ssh/ssh_host_rsa_key": "its own",
        "etc/salt/pki/minion/minion.pem": "PRIVATE",
        "etc/salt/pki/minion/minion.pub": f"{KEY}\n",
    }
    for path, text in texts.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def rename(tmp_path, root, old="web1.example.org", new="db1.example.org", key=KEY):
    """Have the worker rename the minion below a folder."""
    context = SimpleNamespace(settings=HostSettings(state_dir=str(tmp_path / "state")), opts={})
    assert sys.executable
    return write.rename_minion(context, str(root), None, old, new, public_key=key, via="folder")


def contents(root):
    """Return the texts of all files of a root."""
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def test_id_and_host_name_change_and_nothing_else_does(tmp_path, root):
    before = contents(root)

    for _run in range(2):
        rename(tmp_path, root)

    changed = {path: text for path, text in contents(root).items() if before.get(path) != text}
    assert changed == {
        "etc/salt/minion_id": "db1.example.org\n",
        CONFIG: "grains:\n  id: other\nid: db1.example.org\nmaster: m\n",
        "etc/hostname": "db1\n",
        "etc/hosts": "127.0.0.1 localhost\n127.0.1.1 db1.example.org db1\n10.0.0.9 web1\n",
    }


def test_the_reverse_call_undoes_it(tmp_path, root):
    before = contents(root)

    rename(tmp_path, root)
    rename(tmp_path, root, "db1.example.org", "web1.example.org")

    assert contents(root) == before


@pytest.mark.parametrize("name", ["1e5", "true", "0x10"])
def test_a_name_that_yaml_takes_for_a_number_stays_a_text(tmp_path, root, name):
    rename(tmp_path, root, new=name)
    assert yaml.safe_load((root / CONFIG).read_text())["id"] == name

    rename(tmp_path, root, name, "web1.example.org")
    assert yaml.safe_load((root / CONFIG).read_text())["id"] == "web1.example.org"


def test_an_image_without_this_projects_configuration_gets_one(tmp_path, root):
    (root / CONFIG).unlink()
    (root / "etc/hostname").write_text("given-by-hand\n")

    rename(tmp_path, root)

    assert (root / CONFIG).read_text() == "id: db1.example.org\n"
    assert (root / "etc/hostname").read_text() == "given-by-hand\n"


def set_other_id(root):
    """Give the guest the id of another minion."""
    (root / CONFIG).write_text("id: elsewhere\n")


def set_other_key(root):
    """Give the guest another key."""
    (root / "etc/salt/pki/minion/minion.pub").write_text("another")


def remove_minion(root):
    """Remove the guest's minion."""
    (root / "usr/bin/salt-minion").unlink()


def remove_identity(root):
    """Make the guest like an image: cloud-init has not run yet."""
    for path in (CONFIG, "etc/salt/minion_id"):
        (root / path).unlink()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_other_id, "its minion is called 'elsewhere', and not 'web1.example.org'"),
        (set_other_key, "its minion has another key than the master has accepted for it"),
        (remove_minion, "there is no salt-minion in it"),
        (remove_identity, "its minion is called by none of the names"),
    ],
)
def test_another_guest_is_refused_before_anything_is_written(tmp_path, root, change, reason):
    change(root)
    before = contents(root)

    with pytest.raises(DiskRefused, match=f"cannot be given another minion id: {reason}"):
        rename(tmp_path, root)

    assert contents(root) == before


def test_a_failed_write_is_no_refusal(tmp_path, root):
    # A folder in the place of a file: only the first write fails on it.
    (root / "etc/salt/minion_id").unlink()
    (root / "etc/salt/minion_id").mkdir()
    (root / "etc/salt/minion_id/x").write_text("")

    with pytest.raises(SeedError) as error:
        rename(tmp_path, root)
    assert not isinstance(error.value, DiskRefused)
