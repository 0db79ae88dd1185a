"""An end of a move on libvirt's test driver."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import libvirt
import pytest
from endkit import End
from hostkit import empty_image, fresh_driver, hypervisor
from masterkit import four_hosts, master, run, said, two
from saltvirt.core import filecontent
from saltvirt.libvirt.domains import halves, lifecycle, migrate
from saltvirt.migration.host import arrivalchecks, sending

__all__ = [
    "conn",
    "empty_image",
    "end",
    "four_hosts",
    "fresh_driver",
    "hypervisor",
    "master",
    "run",
    "said",
    "two",
]


@pytest.fixture
def end(hypervisor, tmp_path, monkeypatch):
    """An end of a move; the libvirt of its other end is replaced."""
    folder = tmp_path / "other"
    folder.mkdir()
    new_end = End(hypervisor, folder)

    def push(_connection, local_path, remote_path):
        shutil.copy(local_path, folder / Path(remote_path).name)
        new_end.meanwhile()
        return filecontent.digest(local_path)

    def hand_over(*_args):
        (folder / "defined").touch()
        new_end.moving()
        return {"memory_bytes": 1}

    def undefine(conn, name, *, with_snapshots, keep_tpm):
        # The test driver does not know the flag that keeps the firmware's variables.
        flag = libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA if with_snapshots else 0
        conn.lookupByName(name).undefineFlags(flag)
        (hypervisor.definitions / f"{name}.xml").unlink(missing_ok=True)
        new_end.kept_tpms |= {name: keep_tpm}

    missing_reasons = ["it is not defined there"]
    monkeypatch.setattr(migrate, "target", lambda _uri: nullcontext("the other"))
    monkeypatch.setattr(migrate, "push", push)
    monkeypatch.setattr(
        migrate,
        "find_missing_on_target",
        lambda *_, **__: [] if (folder / "defined").exists() else missing_reasons,
    )
    monkeypatch.setattr(sending, "hand_over", hand_over)
    monkeypatch.setattr(lifecycle, "undefine_moved", undefine)
    monkeypatch.setattr(sending, "_QEMU_PKI", folder)
    for name in sending._TLS_FILES:
        (folder / name).touch()
    # The test driver knows no machine types and no jobs, as libvirt has them of QEMU.
    monkeypatch.setattr(arrivalchecks, "_libvirts_reasons", lambda *_: [])
    monkeypatch.setattr(migrate, "read_current_job", lambda *_: {})
    monkeypatch.setattr(halves, "runs_alone", lifecycle.is_active)
    return new_end


@pytest.fixture
def conn(end):
    """The host's libvirt, as long as the test runs."""
    with end.hypervisor.libvirt() as connection:
        yield connection
