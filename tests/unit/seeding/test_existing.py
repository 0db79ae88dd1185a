"""seed.apply and its parts on folders: what is refused, and who may read the files."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
import yaml
from saltvirt.core.errors import BadArgument, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding import existing


@pytest.fixture
def context(tmp_path):
    """A host that may submit no key; its master is known by an address."""
    settings = HostSettings(state_dir=str(tmp_path / "state"), seed={"bootstrap": "/no/such.sh"})
    return Context(settings=settings, opts={"master": "10.0.0.1", "pki_dir": str(tmp_path)})


def apply(context, path, id_="web1", config=None, **flags):
    """Seed as the execution module does."""
    options = {"approve_key": True, "install": True, "prep_install": False, **flags}
    return existing.apply(context, path, id_, config, (None, None), **options)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"path": "/"}, "/ is this host itself"),
        ({"path": "/no/such/file"}, "there is no file, device or folder"),
        ({"path": "/etc", "id_": None}, "give the id of the minion"),
        ({"path": "/etc", "id_": "../x"}, "cannot name a VM"),
        ({"path": "/etc", "install": "yes"}, "install: 'yes' is neither True nor False"),
        ({"path": "/etc", "config": ["x"]}, "config"),
    ],
)
def test_a_wrong_argument_is_refused(context, words, reason):
    with pytest.raises(BadArgument, match=reason):
        apply(context, **words)


def test_a_folder_is_seeded_and_its_guest_makes_its_own_key(context, tmp_path):
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)

    apply(context, str(root), config={"log_level": "debug"})

    config = yaml.safe_load((root / "etc/salt/minion.d/zz-salt-virt.conf").read_text())
    assert config == {"id": "web1", "master": "10.0.0.1", "log_level": "debug"}
    assert not (root / "etc/salt/pki/minion/minion.pem").exists()


def test_a_minion_without_an_id_has_its_hosts_name_as_on_3006(context, tmp_path):
    paths = existing.mkconfig(
        context,
        {"log_level": "debug"},
        str(tmp_path / "seed"),
        None,
        (None, None),
        approve_key=True,
    )

    config = yaml.safe_load(Path(paths["config"]).read_text())
    assert config == {"master": "10.0.0.1", "log_level": "debug"}
    assert "PRIVATE KEY" in Path(paths["privkey"]).read_text()


def test_a_configuration_and_a_key_pair_are_for_root_alone(context, tmp_path):
    paths = existing.mkconfig(
        context, None, str(tmp_path / "seed"), "web1", (None, None), approve_key=True
    )

    assert set(paths) == {"config", "pubkey", "privkey"}
    assert yaml.safe_load(Path(paths["config"]).read_text()) == {"id": "web1", "master": "10.0.0.1"}
    for path in map(Path, paths.values()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "PRIVATE KEY" in Path(paths["privkey"]).read_text()
    assert yaml.safe_load(Path(paths["config"]).read_text())["id"] == "web1"


def test_no_key_is_written_where_another_user_could_replace_it(context, tmp_path):
    foreign_folder, open_folder, within = (
        tmp_path / "theirs",
        tmp_path / "open",
        tmp_path / "theirs/within",
    )
    within.mkdir(parents=True)
    open_folder.mkdir()
    open_folder.chmod(0o777)
    os.chown(foreign_folder, 65534, 65534)
    (tmp_path / "link").symlink_to(foreign_folder)

    for folder in (foreign_folder, open_folder, within, tmp_path / "link"):
        with pytest.raises(SeedError, match="could replace the key .*; give tmp= a folder of root"):
            existing.mkconfig(context, None, str(folder), "w1", (None, None), approve_key=True)
        assert [path for path in folder.iterdir() if path.is_file()] == []

    open_folder.chmod(0o1777)  # as /tmp
    assert existing.mkconfig(context, None, str(open_folder), "w1", (None, None), approve_key=True)


def test_no_key_is_written_relative_to_the_minions_folder(context, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(BadArgument, match="^tmp: 'seed' is not an absolute path"):
        existing.mkconfig(context, None, "seed", "w1", (None, None), approve_key=True)
    assert not (tmp_path / "seed").exists()


def test_a_refusal_leaves_no_folder_behind(context, tmp_path, monkeypatch):
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    (open_folder / "mine").mkdir()
    (tmp_path / "link").symlink_to(open_folder)
    monkeypatch.setattr(tempfile, "tempdir", str(open_folder))

    for tmp in (
        open_folder / "a/b/seed",
        open_folder / "mine",
        open_folder / "mine/seed",
        tmp_path / "link/c",
        None,
    ):
        with pytest.raises(SeedError, match="could replace the key"):
            existing.mkconfig(context, None, tmp and str(tmp), "w1", (None, None), approve_key=True)

    assert [path.relative_to(open_folder) for path in open_folder.rglob("*")] == [Path("mine")]


def test_a_bootstrap_script_goes_below_the_guests_tmp(context, tmp_path, monkeypatch):
    script, root = tmp_path / "bootstrap.sh", tmp_path / "root"
    script.write_text("#!/bin/sh\n")
    (root / "tmp").mkdir(parents=True)
    monkeypatch.setattr(existing, "_obtain_bootstrap", lambda _context: script)

    host_path, guest_folder = existing.prep_bootstrap(context, str(root))

    assert Path(host_path).read_text() == "#!/bin/sh\n"
    assert str(root) + guest_folder == str(Path(host_path).parent)
    (root / "tmp").rename(root / "real")
    (root / "tmp").symlink_to("/tmp")
    with pytest.raises(SeedError, match="is a link, and would lead out"):
        existing.prep_bootstrap(context, str(root))
