"""A guest's identity as a credential, as its systemd-tmpfiles takes it."""

import stat
import subprocess

from saltvirt.seeding import credentials


def test_a_credential_is_what_systemd_tmpfiles_does(tmp_path):
    files = [
        ("/etc/salt/minion_id", "web1\n", "644"),
        ("/etc/salt/pki/minion/minion.pem", "SECRET\nlines % here", "400"),
    ]
    rules = tmp_path / "rules.conf"
    rules.write_bytes(credentials.content(files))

    argv = ["systemd-tmpfiles", "--create", f"--root={tmp_path}", rules]
    subprocess.run(argv, check=True)

    for path, text, mode in files:
        made = tmp_path / path.lstrip("/")
        assert (made.read_text(), stat.S_IMODE(made.stat().st_mode)) == (text, int(mode, 8))
    assert stat.S_IMODE((tmp_path / "etc/salt/pki/minion").stat().st_mode) == 0o700


def test_a_credential_without_a_key_leaves_none_of_the_image(tmp_path):
    pki, rules = tmp_path / "etc/salt/pki/minion", tmp_path / "rules.conf"
    pki.mkdir(parents=True)
    for name in ("minion.pem", "minion.pub", "minion_master.pub"):
        (pki / name).write_text("of the image")
    rules.write_bytes(credentials.content([("/etc/salt/minion_id", "web1\n", "644")]))

    # As systemd-tmpfiles-setup.service calls it when a guest boots.
    argv = ["systemd-tmpfiles", "--create", "--remove", "--boot", f"--root={tmp_path}", rules]
    subprocess.run(argv, check=True)

    assert [one.name for one in pki.iterdir()] == ["minion_master.pub"]
    assert (tmp_path / "etc/salt/minion_id").read_text() == "web1\n"
