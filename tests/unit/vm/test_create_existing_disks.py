"""A disk that is there already is the VM's again, whole; nothing that fails or dies removes it."""

import fcntl
import hashlib
import json
import os
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import onrecord
import pytest
from saltvirt.core.errors import BadArgument, ReservationRefused, SeedError, StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import diskpaths, ownermark, policies, sharing, usage
from saltvirt.vm import spec
from saltvirt.vm.create.host import create, existing
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.xml.edit import readdomain

MARKER = b"what the guest wrote"
UNSEEDED = {"image": None, "pub_key": None, "priv_key": None}


def digest(path):
    """Return what is in a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def virtual(path):
    """Return how large a disk is to its guest."""
    said = subprocess.run(["qemu-img", "info", "--output=json", path], capture_output=True)
    return json.loads(said.stdout)["virtual-size"]


def disk(path, fmt="qcow2", size="8M"):
    """Make a disk with a marker in it, and return its digest."""
    path.parent.mkdir(exist_ok=True, parents=True)
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, path, size], check=True)
    if fmt == "raw":
        with path.open("r+b") as handle:
            handle.write(MARKER)
    else:
        write = ["qemu-io", "-c", "write -P 7 1M 64k", path]
        subprocess.run(write, check=True, capture_output=True)
    return digest(path)


def defined(hypervisor, name="web1"):
    """Return the disks of a VM."""
    return readdomain.disk_sources(
        readdomain.domain((hypervisor.definitions / f"{name}.xml").read_text())
    )


def undefine(hypervisor, conn, name="web1"):
    """Forget a VM."""
    lifecycle.destroy(conn, name)
    purge.undefine(conn, hypervisor.settings, name)
    assert hypervisor.domains() == []


@pytest.fixture
def pool(hypervisor):
    """A host with a pool of files, ``p``; its folder."""
    folder = hypervisor.root / "pool"
    folder.mkdir()
    xml = f"<pool type='dir'><name>p</name><target><path>{folder}</path></target></pool>"
    with hypervisor.libvirt() as conn:
        made = conn.storagePoolDefineXML(xml)
        made.create()
        yield folder
        made.destroy()
        made.undefine()


def test_a_vm_that_was_undefined_gets_what_it_had(hypervisor):
    images = Path(hypervisor.settings.images)
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        for name in ("system", "data"):
            write = ["qemu-io", "-c", "write -P 7 1M 64k", images / f"web1_{name}.qcow2"]
            subprocess.run(write, check=True, capture_output=True)
        had = {name: digest(images / name) for name in hypervisor.files()}
        before = [(one["path"], one["format"]) for one in defined(hypervisor)]
        undefine(hypervisor, conn)

        assert hypervisor.init() is True

        assert {name: digest(images / name) for name in hypervisor.files()} == had
        assert [(one["path"], one["format"]) for one in defined(hypervisor)] == before
        assert hypervisor.open_records() == []
        warned = [figures["detail"] for stage, figures in hypervisor.said if stage == "Warning"]
        assert "image.qcow2 is not copied, and nothing is seeded" in warned[0]
        purge.purge(conn, hypervisor.settings, "web1")
    assert hypervisor.files() == []


# What 3006 called the volume of a pool, and what is called so here.
NAMES = [
    ("web1_data", "qcow2", {}),
    ("web1_data", "raw", {"format": "raw"}),
    ("web1_data.qcow2", "qcow2", {}),
    ("web1_data.raw", "raw", {}),
    ("web1_data.raw", "raw", {"format": "raw"}),
]


@pytest.mark.parametrize(("name", "fmt", "said"), NAMES)
def test_a_volume_of_the_disks_name_is_the_disk(hypervisor, pool, name, fmt, said):
    had = disk(pool / name, fmt)

    hypervisor.init(
        image=None,
        disk=None,
        pub_key=None,
        priv_key=None,
        disks=[{"name": "data", "size": 8, "pool": "p", **said}],
    )

    (one,) = defined(hypervisor)
    assert (one["path"], one["format"]) == (str(pool / name), fmt)
    assert digest(pool / name) == had and [one.name for one in pool.iterdir()] == [name]


def test_the_default_pool_hides_nothing_that_3006_made_in_the_image_folder(hypervisor, pool):
    hypervisor.settings = replace(hypervisor.settings, storagepool="p")
    old = Path(hypervisor.settings.images) / "web1_data.qcow2"
    had = disk(old)

    hypervisor.init()

    assert [one["path"] for one in defined(hypervisor)][1] == str(old) and digest(old) == had
    assert sorted(one.name for one in pool.iterdir()) == ["web1_system.qcow2"]


def test_a_dry_run_shows_it_as_existing(hypervisor):
    path = Path(hypervisor.settings.images) / "web1_data.qcow2"
    disk(path)
    with hypervisor.libvirt():
        shown = create.show(hypervisor.context, hypervisor.deployment())

    assert (shown["disks"][1]["made"], shown["disks"][1]["size_mib"]) == ("existing", 8)
    assert str(path) not in shown["files"]


@pytest.mark.parametrize(("size", "grown"), [(4, 8), (8, 8), (16, 16)])
def test_it_is_grown_and_never_shrunk(hypervisor, size, grown):
    path = Path(hypervisor.settings.images) / "web1_data.qcow2"
    disk(path)
    with hypervisor.libvirt():
        hypervisor.init(disks=[{"name": "data", "size": size}])

    assert virtual(path) == grown << 20


def test_what_is_there_takes_no_room_again(hypervisor):
    path = Path(hypervisor.settings.images) / "web1_data.raw"
    path.parent.mkdir()
    subprocess.run(["fallocate", "-l", "64M", path], check=True)
    room = {"disk_mib": 70}
    hypervisor.settings = replace(hypervisor.settings, capacity=room)
    with hypervisor.libvirt():
        with pytest.raises(ReservationRefused, match="MiB of disk wanted"):
            hypervisor.init("web2", disks=[{"name": "data", "size": 128, "format": "raw"}])
        hypervisor.init(disks=[{"name": "data", "size": 64, "format": "raw"}])


def refused(hypervisor, why, **given):
    """Check that a build is refused, and nothing changed."""
    images = Path(hypervisor.settings.images)
    before = {name: digest(images / name) for name in hypervisor.files()}
    domains = hypervisor.domains()
    with pytest.raises(StorageError, match=why):
        hypervisor.init(**given)
    assert {name: digest(images / name) for name in hypervisor.files()} == before
    assert (hypervisor.domains(), hypervisor.open_records()) == (domains, [])


def test_what_is_there_in_a_pool_takes_no_room_of_the_image_folder_from_others(hypervisor, pool):
    path = pool / "web1_data.qcow2"
    disk(path, size="64M")
    grows_mib = (64 << 20) - path.stat().st_blocks * 512 >> 20
    asked = [{"name": "new", "size": 8}, {"name": "data", "size": 64, "pool": "p"}]
    vm = hypervisor.deployment(**UNSEEDED, disk=None, disks=asked).vm
    on = {"p": {"type": "dir", "active": True, "path": str(pool)}}
    places = {one.name: diskpaths.find_place(hypervisor.settings, on, one) for one in vm.disks}

    found = existing.reduce_requirements(hypervisor.settings, vm, places, spec.requirements(vm))

    assert (found.disk_mib, found.stocks) == (8, (("storage pool p", grows_mib),))


def test_what_is_not_sound_is_refused(hypervisor):
    path = Path(hypervisor.settings.images) / "web1_data.qcow2"
    path.parent.mkdir()
    create_ = ["qemu-img", "create", "-q", "-f", "qcow2"]
    with hypervisor.libvirt():
        path.write_bytes(b"no disk at all" * 100)
        refused(hypervisor, "is there already, and cannot be taken as the disk .*not a disk image")
        subprocess.run([*create_, "-F", "raw", "-b", "/etc/hostname", path, "8M"], check=True)
        refused(hypervisor, "names a backing file")
        path.unlink()
        path.mkdir()
        refused(hypervisor, "not a regular file")
        path.rmdir()
        disk(path, "raw")
        refused(hypervisor, "cannot be taken as the disk")
        path.rename(path.with_suffix(".raw"))
        disk(path)
        refused(hypervisor, "web1_data.qcow2 and .*web1_data.raw are there already")


def test_two_disks_are_never_one_file(hypervisor, pool):
    disk(pool / "web1_a.qcow2")
    two = [{"name": name, "size": 8, "pool": "p"} for name in ("a", "a.qcow2")]
    refused(hypervisor, "two disks of VM 'web1' would be .*web1_a.qcow2", disks=two)


def test_what_is_somebody_elses_is_refused(hypervisor):
    images = Path(hypervisor.settings.images)
    path = images / "a_b_c.qcow2"
    disk(path)
    asked = {"name": "a", "disks": [{"name": "b_c", "size": 8}]}
    with hypervisor.libvirt() as conn:
        hypervisor.init("a_b", disks=[{"name": "c", "size": 8}])
        refused(hypervisor, "a_b_c.qcow2 is there already, and stays: VM 'a_b' has it", **asked)
        undefine(hypervisor, conn, "a_b")

        (images / "over.qcow2").unlink(missing_ok=True)
        over = ["-F", "qcow2", "-b", path, images / "over.qcow2"]
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *over], check=True)
        conn.defineXML(
            "<domain type='test'><name>o</name><memory>64</memory><os><type>hvm</type></os>"
            "<devices><disk type='file'><driver type='qcow2'/><source file="
            f"'{images}/over.qcow2'/><target dev='vda'/></disk></devices></domain>"
        )
        refused(hypervisor, "a disk of VM 'o' is based on it", **asked)
        conn.lookupByName("o").undefine()

        (images / "base").mkdir(exist_ok=True)
        path.rename(images / "base" / "other")
        path.symlink_to(images / "base" / "other")
        refused(hypervisor, "is there already, and", **asked)


@pytest.mark.parametrize(
    ("purpose", "phase", "facts"),
    [
        ("build", "making", lambda path: onrecord.build(taken=[path])),
        ("arrival", "preparing", lambda path: onrecord.arrival(paths=[path])),
        ("departure", "leaving", lambda path: onrecord.departure(paths=[path])),
    ],
)
def test_what_is_on_record_for_another_is_refused(hypervisor, purpose, phase, facts):
    path = Path(hypervisor.settings.images) / "a_b_c.qcow2"
    disk(path)
    place = reservations.folder(hypervisor.settings)

    with hypervisor.libvirt() as conn, records.hold_record(place, purpose, "a_b") as other:
        other.begin("t1", phase, **facts(str(path)))
        with pytest.raises(StorageError, match="a_b_c.qcow2 is .* a (disk|file) of VM 'a_b'"):
            hypervisor.init("a", disks=[{"name": "b_c", "size": 8}])
        if purpose == "build":
            # Nor is it removed by whoever removes another's of that name.
            index = usage.index(conn, hypervisor.settings, excluded_vms=["x"])
            kept = unfinished.remove(hypervisor.settings, index, policies.UNDO, [str(path)])
            assert kept == []
    assert path.exists()


def test_what_a_program_has_open_is_refused(hypervisor):
    path = Path(hypervisor.settings.images) / "web1_data.qcow2"
    disk(path)
    with path.open("r+b") as handle, hypervisor.libvirt():
        # As QEMU locks a byte that says what it does.
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 101, 1, 0)
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, lock)
        refused(hypervisor, "another program has it open")


@pytest.mark.parametrize("is_declared", [True, False])
def test_what_all_hosts_share_is_taken_only_when_all_were_asked(
    hypervisor, monkeypatch, is_declared
):
    images = hypervisor.settings.images
    if is_declared:
        hypervisor.settings = replace(hypervisor.settings, shared_paths=[images])
    else:
        # A test mounts no NFS.
        monkeypatch.setattr(sharing, "_is_networked", lambda path: images in str(path))
    path = Path(images) / "web1_data.qcow2"
    had = disk(path)
    with hypervisor.libvirt():
        refused(hypervisor, "on storage that other hosts see.*salt-run virt.init asks all hosts")
        told = hypervisor.context.reporting("web1", "t", {"unasked": ["hyper2"]})
        told = replace(told, progress=hypervisor.context.progress)
        with pytest.raises(StorageError, match="and hyper2 may have a VM with it and cannot be"):
            create.create(told, hypervisor.deployment())
        assert hypervisor.domains() == []
        create.create(replace(told, hosts_without_names=()), hypervisor.deployment())
    assert digest(path) == had


@pytest.mark.parametrize("is_shared", [True, False])
def test_the_disk_of_another_vm_is_not_taken_by_its_name(hypervisor, is_shared):
    images = hypervisor.settings.images
    shared = [images] if is_shared else []
    hypervisor.settings = replace(hypervisor.settings, shared_paths=shared)
    path = Path(images) / "web1_a_b.qcow2"
    had = disk(path)
    deployment = hypervisor.deployment(
        "web1_a", **UNSEEDED, disk=None, disks=[{"name": "b", "size": 8}]
    )
    ordered = replace(hypervisor.context, is_ordered=True)
    with hypervisor.libvirt() as conn:
        if is_shared:
            with pytest.raises(StorageError, match="may be a disk of VM 'web1' on another host"):
                create.create(ordered, deployment)
            with pytest.raises(StorageError, match="may be a disk of VM 'web1' on another host"):
                create.create(replace(ordered, similar_vm_names=frozenset({"web1"})), deployment)
        ownermark.mark(path, "web1", "3c9a1d3e-6d5a-4d31-9f0e-2b1c4c1d0a77")
        with pytest.raises(StorageError, match="was made for VM 'web1'"):
            create.create(ordered, deployment)
        assert hypervisor.domains() == []
        # What is its own is taken all the same.
        ownermark.mark(path, "web1_a", "3c9a1d3e-6d5a-4d31-9f0e-2b1c4c1d0a78")
        if is_shared:
            # But where another host may have it under another name.
            with pytest.raises(StorageError, match="may have under another name"):
                create.create(ordered, deployment)
            ownermark.unmark(path)
        else:
            create.create(ordered, deployment)
            assert [one["path"] for one in defined(hypervisor, "web1_a")] == [str(path)]
            undefine(hypervisor, conn, "web1_a")
        # Nor is what no VM there is can have.
        create.create(replace(ordered, similar_vm_names=frozenset()), deployment)
    assert digest(path) == had


def test_the_masters_identity_is_not_dropped_in_silence(hypervisor):
    disk(Path(hypervisor.settings.images) / "web1_system.qcow2")
    ordered = replace(hypervisor.context, is_ordered=True)
    with hypervisor.libvirt():
        with pytest.raises(StorageError, match="its minion's key too; seed=False takes it as it"):
            create.create(ordered, hypervisor.deployment())
        unseeded = {"pub_key": None, "priv_key": None, "seed": False}
        said = create.create(ordered, hypervisor.deployment(**unseeded))
    assert "was there already and is taken as it is" in said["warnings"][0]


POINTS = ["before-making", "making", "before-defining", "defining", "before-complete", "complete"]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_builder_that_dies_leaves_it(hypervisor, point):
    path = Path(hypervisor.settings.images) / "web1_data.qcow2"
    had = disk(path)
    hypervisor.dies(hypervisor.init, f"build.{point}")

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)
        is_there = bool(hypervisor.domains())
        assert digest(path) == had and hypervisor.open_records() == []
        assert is_there or hypervisor.files() == ["web1_data.qcow2"]
        if not is_there:
            hypervisor.init()
    assert digest(path) == had


@pytest.mark.parametrize("where", ["start", "define"])
def test_a_build_that_fails_leaves_it(hypervisor, monkeypatch, where):
    path = Path(hypervisor.settings.images) / "web1_data.qcow2"
    had = disk(path)

    def fail(*_args):
        raise SeedError("this step failed")

    monkeypatch.setattr(lifecycle, where, fail)
    with hypervisor.libvirt(), pytest.raises(SeedError):
        hypervisor.init()
    assert (hypervisor.files(), hypervisor.domains()) == (["web1_data.qcow2"], [])
    assert digest(path) == had and hypervisor.open_records() == []


def test_keys_without_anything_to_seed_are_refused_as_before(hypervisor):
    with hypervisor.libvirt(), pytest.raises(BadArgument, match="there is nothing to seed"):
        hypervisor.init(image=None)
