"""A host with libvirt's test driver; its definitions outlive a killed process."""

import gc
import multiprocessing
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import keypairs
import libvirt
import pytest
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, reservations
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.placement.answers import DomainTypes
from saltvirt.vm import spec
from saltvirt.vm.create.host import create
from saltvirt.vm.show.host import inspect

PUBLIC, PRIVATE = keypairs.named("a guest")


@pytest.fixture
def fresh_driver():
    """
    Reset libvirt's test driver.

    An exception that an earlier test has caught may still refer to its connection, and the driver
    keeps its changes while a connection exists. Older objects were collected before.
    """
    gc.collect(1)


@dataclass
class Hypervisor:
    """A host with an image, and properties to inspect it."""

    settings: HostSettings
    root: Path
    said: list = field(default_factory=list)

    @property
    def definitions(self):
        """The folder that stands for libvirt's own, which the test driver does not have."""
        return self.root / "qemu"

    @contextmanager
    def libvirt(self):
        """Yield a connection with all definitions, which the driver keeps while it is open."""
        with connect.open_connection(self.settings, readonly=False) as conn:
            for name in query.names(conn):
                lifecycle.destroy(conn, name)
                _forget(conn, name)
            for path in sorted(self.definitions.glob("*.xml")):
                conn.defineXML(path.read_text())
            yield conn

    def deployment(self, name="web1", **options):
        """Return the deployment of a virt.init call: an overlay and an empty disk, seeded."""
        arguments = {
            "image": str(self.root / "image.qcow2"),
            "disks": [{"name": "data", "size": 8}],
            "seed_method": "nocloud",
            "pub_key": PUBLIC,
            "priv_key": PRIVATE,
            **options,
        }
        return spec.deployment(self.settings, name, 1, 64, arguments)

    @property
    def context(self):
        """The context of a call."""

        def progress(stage, **figures):
            self.said.append((stage, figures))

        return Context(settings=self.settings, opts={"master": "10.0.0.1"}, progress=progress)

    def init(self, name="web1", **options):
        """Build a VM as virt.init does."""
        return create.create(self.context, self.deployment(name, **options))

    def dies(self, work, point=None):
        """Run ``work`` in a process that is killed at a phase boundary, or that kills itself."""
        faults = self.root / "faults"
        if point:
            faults.write_text(f"{point} kill")

        def run():
            os.environ[records.FAULTS] = str(faults)
            with self.libvirt():
                work()

        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join()
        faults.unlink(missing_ok=True)
        assert process.exitcode == -signal.SIGKILL, process.exitcode

    def files(self):
        """Return the files of VMs."""
        images = Path(self.settings.images)
        return sorted(p.name for p in images.glob("*") if p.is_file()) if images.exists() else []

    def open_records(self):
        """Return ``(purpose, name, phase)`` of all records."""
        folder = reservations.folder(self.settings)
        return [
            (record.purpose, record.name, record.phase)
            for purpose in ("build", "purge")
            for record in records.read_records(folder, purpose)
        ]

    def domains(self):
        """Return the names of all defined domains."""
        return sorted(path.stem for path in self.definitions.glob("*.xml"))


@pytest.fixture(scope="session")
def empty_image(tmp_path_factory):
    """An empty image, which is copied."""
    path = tmp_path_factory.mktemp("empty") / "image.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "8M"], check=True)
    return path


@pytest.fixture
def settings(tmp_path):
    """Settings of a host with a trash."""
    return HostSettings(
        uri="test:///default",
        images=str(tmp_path / "images"),
        state_dir=str(tmp_path / "state"),
        trash_days=7,
        is_trash_set=True,
    )


@pytest.fixture
def hypervisor(tmp_path, monkeypatch, empty_image, fresh_driver):
    """A host on libvirt's test driver, with fakes of the facts that the driver lacks."""
    types = DomainTypes(default="test", usable=["test"], why="")
    monkeypatch.setattr(inspect, "domain_types", lambda *_: types)
    # The memory of the test driver's own VM, and the same amount again.
    monkeypatch.setattr(query, "node", lambda _conn: {"phymemory": 16384, "cpus": 4})
    monkeypatch.setattr(inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    settings = HostSettings(
        uri="test:///default",
        images=str(tmp_path / "images"),
        state_dir=str(tmp_path / "state"),
        nic={"default": []},
        disk={"default": [{"name": "system"}]},
        reserve_mib=0,
        disk_reserve_mib=0,
        console_log=False,
        trash_days=0,
    )
    host = Hypervisor(settings=settings, root=tmp_path)
    host.definitions.mkdir()
    shutil.copy(empty_image, tmp_path)
    _keep_definitions(monkeypatch, host.definitions)
    return host


@pytest.fixture
def keeping(hypervisor):
    """A host with a trash, and one VM: an overlay, an empty disk, a seed."""
    hypervisor.settings = replace(hypervisor.settings, trash_days=7, is_trash_set=True)
    with hypervisor.libvirt():
        hypervisor.init()
    return hypervisor


def _forget(conn, name):
    kept_parts = ("MANAGED_SAVE", "SNAPSHOTS_METADATA")
    flags = sum(getattr(libvirt, f"VIR_DOMAIN_UNDEFINE_{part_name}") for part_name in kept_parts)
    conn.lookupByName(name).undefineFlags(flags)


def _keep_definitions(monkeypatch, folder):
    define = lifecycle.define

    def kept(conn, xml):
        name = define(conn, xml)
        flags = libvirt.VIR_DOMAIN_XML_INACTIVE
        (folder / f"{name}.xml").write_text(conn.lookupByName(name).XMLDesc(flags))
        return name

    def gone(conn, name, **_flags):
        # The test driver supports fewer flags.
        _forget(conn, name)
        (folder / f"{name}.xml").unlink(missing_ok=True)

    monkeypatch.setattr(lifecycle, "define", kept)
    monkeypatch.setattr(lifecycle, "undefine", gone)
