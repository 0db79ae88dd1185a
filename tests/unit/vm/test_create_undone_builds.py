"""A finished build is taken back: what it made goes, what was there before stays."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import domainfiles, lifecycle
from saltvirt.storage import ownermark
from saltvirt.storage.vmvolumes import VmVolumes
from saltvirt.vm.create.host import create
from saltvirt.vm.purge.host import purge, removed
from saltvirt.vm.show.host import inspect
from saltvirt.xml.edit import readdomain

SEEDLESS = {"image": None, "seed": False, "pub_key": None, "priv_key": None}


@pytest.fixture
def conn(hypervisor):
    with hypervisor.libvirt() as opened:
        yield opened


def build(hypervisor, name="web1", **given):
    """Build a VM as for init_many all_or_nothing=True."""
    context = replace(hypervisor.context, is_undoable=True, is_ordered=True)
    return create.create(context, hypervisor.deployment(name, **given))


def take_back(hypervisor, conn, name="web1"):
    uuid = lifecycle.uuid(conn, name)
    purge.purge(conn, hypervisor.settings, name, uuid=uuid, only_made=True)


def test_a_disk_that_was_there_before_the_build_stays(hypervisor, conn):
    images = Path(hypervisor.settings.images)
    hypervisor.init(start=False)
    disk = images / "web1_data.qcow2"
    purge.undefine(conn, hypervisor.settings, "web1")
    before = set(hypervisor.files())
    build(hypervisor, disks=[{"name": "data", "size": 8}, {"name": "new", "size": 8}], **SEEDLESS)
    assert set(hypervisor.files()) - before == {"web1_new.qcow2"}

    take_back(hypervisor, conn)

    assert set(hypervisor.files()) == before and disk.exists()
    assert ownermark.read_owner(disk) is None, "virt.doctor would take it for left by the VM"
    assert hypervisor.domains() == [] and hypervisor.open_records() == []


def test_a_build_over_no_disk_leaves_nothing(hypervisor, conn):
    build(hypervisor)

    take_back(hypervisor, conn)

    assert hypervisor.files() == [] and hypervisor.domains() == []


@pytest.mark.parametrize("fmt", ["qcow2", "raw"])
def test_a_disk_that_the_call_has_named_by_its_file_stays(hypervisor, conn, fmt):
    given = hypervisor.root / f"given.{fmt}"
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, given, "8M"], check=True)
    disks = [{"name": "system", "source_file": str(given), "format": fmt}]
    build(hypervisor, disks=disks, **SEEDLESS)

    take_back(hypervisor, conn)

    assert given.exists() and hypervisor.domains() == []


def test_a_disk_that_was_attached_since_stays_with_what_it_is_based_on(hypervisor, conn):
    build(hypervisor, disks=[], start=False)
    base, top = hypervisor.root / "base.qcow2", hypervisor.root / "top.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "8M"], check=True)
    overlay = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, top]
    subprocess.run(overlay, check=True)
    uuid = lifecycle.uuid(conn, "web1")
    for path in (base, top):
        ownermark.mark(path, "web1", uuid)
    attached = (
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{top}'/>"
        "<target dev='vdz' bus='virtio'/></disk></devices>"
    )
    text = lifecycle.inactive_xml(conn, "web1").replace("</devices>", attached)
    lifecycle.define(conn, text)

    take_back(hypervisor, conn)

    assert top.exists() and base.exists() and hypervisor.files() == []
    assert ownermark.read_owner(top) is None and ownermark.read_owner(base) is None


def test_a_purge_of_the_same_vm_still_takes_all_its_disks(hypervisor, conn):
    hypervisor.init(start=False)
    purge.undefine(conn, hypervisor.settings, "web1")
    build(hypervisor, **SEEDLESS)

    purge.purge(conn, hypervisor.settings, "web1", uuid=lifecycle.uuid(conn, "web1"))

    assert "web1_data.qcow2" not in hypervisor.files()


def test_what_was_not_noted_is_not_guessed(hypervisor, conn):
    hypervisor.init()
    files = hypervisor.files()

    with pytest.raises(StorageError, match="is not noted in its definition, so nothing is removed"):
        take_back(hypervisor, conn)

    assert hypervisor.files() == files and hypervisor.domains() == ["web1"]
    assert inspect.presence(conn, hypervisor.settings, "web1").notes_made is None


def test_a_host_says_that_it_can_take_a_build_back(hypervisor, conn):
    build(hypervisor)
    notes = readdomain.notes(readdomain.domain(lifecycle.inactive_xml(conn, "web1")))

    assert inspect.presence(conn, hypervisor.settings, "web1").notes_made is True
    assert {Path(path).name for path in notes.made} == set(hypervisor.files())
    assert notes.made_variables


@pytest.mark.parametrize("were_there", [False, True])
def test_variables_that_were_there_before_the_build_stay(hypervisor, conn, monkeypatch, were_there):
    monkeypatch.setattr(domainfiles, "has_variables", lambda *_args: were_there)
    build(hypervisor)
    undefine, kept = lifecycle.undefine, []
    monkeypatch.setattr(
        lifecycle,
        "undefine",
        lambda conn_, name, *, keep_nvram, keep_tpm: kept.append(keep_nvram)
        or undefine(conn_, name),
    )

    take_back(hypervisor, conn)

    assert kept == [were_there]


def test_only_volumes_that_the_build_made_go():
    removal = removed.Removal(
        uuid="u",
        made_names=frozenset({"lvm/new", "/a"}),
        kept_paths=frozenset(),
        keeps_variables=True,
    )
    own = VmVolumes(
        paths=["/a", "/b"], volumes=[["lvm", "new", "7"], ["lvm", "old", "8"], ["rbd", "x"]]
    )

    assert removal.own(own) == VmVolumes(paths=["/a"], volumes=[["lvm", "new", "7"]])
