"""A guest's identity as a credential, as the guest's systemd-tmpfiles applies it."""

import stat
import subprocess

from saltvirt.seeding import credentials


def test_systemd_tmpfiles_writes_the_files_of_a_credential(tmp_path):
    files = [
        ("/etc/salt/minion_id", "web1\n", "644"),
        ("/etc/salt/pki/minion/minion.pem", "SECRET\nlines % here", "400"),
    ]
    rules = tmp_path / "rules.conf"
    rules.write_bytes(credentials.content(files))

    argv = ["systemd-tmpfiles", "--create", f"--root={tmp_path}", rules]
    subprocess.run(argv, check=True)

    for path, text, mode in files:
        path_in_guest = tmp_path / path.lstrip("/")
        assert (path_in_guest.read_text(), stat.S_IMODE(path_in_guest.stat().st_mode)) == (
            text,
            int(mode, 8),
        )
    assert stat.S_IMODE((tmp_path / "etc/salt/pki/minion").stat().st_mode) == 0o700


def test_a_credential_without_a_key_removes_the_images_key(tmp_path):
    pki, rules = tmp_path / "etc/salt/pki/minion", tmp_path / "rules.conf"
    pki.mkdir(parents=True)
    for name in ("minion.pem", "minion.pub", "minion_master.pub"):
        (pki / name).write_text("of the image")
    rules.write_bytes(credentials.content([("/etc/salt/minion_id", "web1\n", "644")]))

    # As systemd-tmpfiles-setup.service calls it when a guest boots.
    argv = ["systemd-tmpfiles", "--create", "--remove", "--boot", f"--root={tmp_path}", rules]
    subprocess.run(argv, check=True)

    assert [path.name for path in pki.iterdir()] == ["minion_master.pub"]
    assert (tmp_path / "etc/salt/minion_id").read_text() == "web1\n"
