"""
Pass a guest its identity as a systemd credential from QEMU; no disk is mounted or attached.

systemd-tmpfiles writes the files at the guest's first boot. The credential is in QEMU's memory for
that run only: the host's file is removed once QEMU has read it, and the next start has none.
Source: systemd.system-credentials(7), tmpfiles.d(5); QEMU, -fw_cfg.
"""

import base64
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from saltvirt.xml import parse, to_text
from saltvirt.xml.domain import sysinfo

NAME = sysinfo.CREDENTIAL
_HOME = "/root"
_SSH = f"{_HOME}/.ssh"
_MODES = {"/etc/salt/pki/minion": "0700", _SSH: "0700"}
_NOT_MADE = ("/", "/etc", _HOME)
# A key in the image, which all its VMs would share.
_KEYS = ("/etc/salt/pki/minion/minion.pem", "/etc/salt/pki/minion/minion.pub")


def content(files: Iterable[tuple[str, str, str]], ssh_keys: Sequence[str] = ()) -> bytes:
    """
    Return the configuration for systemd-tmpfiles.

    files
        ``[(path, text, octal mode)]``; folders are created, files are replaced. A minion's key that
        is not among them is removed from the guest, which then makes its own.
    ssh_keys
        Keys that may log in as root; they replace the image's own.
    """
    lines, made_folders = [], set()
    authorized_text = "".join(f"{key}\n" for key in ssh_keys)
    files = [*files, *([(f"{_SSH}/authorized_keys", authorized_text, "600")] if ssh_keys else [])]
    for path, _text, _mode in files:
        for folder in reversed(PurePosixPath(path).parents):
            if str(folder) not in _NOT_MADE and folder not in made_folders:
                made_folders.add(folder)
                lines.append(f"d {folder} {_MODES.get(str(folder), '0755')} root root -")
    lines += [f"r {key}" for key in _KEYS if key not in {path for path, _text, _mode in files}]
    for path, text, mode in files:
        encoded_text = base64.b64encode(text.encode()).decode()
        lines.append(f"f+~ {path} 0{mode} root root - {encoded_text}")
    return ("\n".join(lines) + "\n").encode()


def add_credential(xml: str, path: object) -> str:
    """Return a domain's XML with the file as its credential."""
    root = parse(xml)
    sysinfo.add(root, sysinfo.for_file(NAME, path))
    return to_text(root)
