"""
A guest's identity as a credential of systemd, handed over by QEMU; nothing is mounted or attached.

systemd-tmpfiles writes it at the guest's first boot. The credential is in QEMU's memory for that
run alone: the host's file is gone once QEMU has read it, and the next start has none.
Source: systemd.system-credentials(7), tmpfiles.d(5); QEMU, -fw_cfg.
"""

import base64
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from saltvirt.xml import parse, sysinfo, to_text

NAME = sysinfo.CREDENTIAL
LEAST_SYSTEMD = 252
_HOME = "/root"
_SSH = f"{_HOME}/.ssh"
_MODES = {"/etc/salt/pki/minion": "0700", _SSH: "0700"}
_NOT_MADE = ("/", "/etc", _HOME)
# One that comes with the image, all of its VMs would have.
_KEYS = ("/etc/salt/pki/minion/minion.pem", "/etc/salt/pki/minion/minion.pub")


def content(files: Iterable[tuple[str, str, str]], ssh_keys: Sequence[str] = ()) -> bytes:
    """
    Return what systemd-tmpfiles shall do.

    files
        ``[(path, text, octal mode)]``; folders are made, files are replaced. A minion's key that
        is not among them is removed from the guest, which makes one of its own.
    ssh_keys
        Of those who may log in as root; those that the image lets in are let in no more.
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
