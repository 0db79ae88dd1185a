"""What a build does is decided from plain facts, before anything is made."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import told
from saltvirt.core.errors import BadArgument, NameTaken, ReservationRefused, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.placement.answers import DomainTypes
from saltvirt.seeding import seedchoice
from saltvirt.storage.diskpaths import Place
from saltvirt.storage.images import validation
from saltvirt.vm import spec
from saltvirt.vm.create.host import buildfacts, buildplan, create
from saltvirt.xml.edit import readdomain

IMAGE = "salt://images/any.qcow2"
BASE = validation.ValidatedImage(path="/images/base/aa.qcow2", format="qcow2", size_bytes=16 * MIB)
HOST = buildfacts.HostFacts(
    arch="x86_64",
    domain_types=DomainTypes(default="kvm", usable=["kvm", "qemu"], why=""),
    qemu="7.2.22",
)
FLEETS = Path(__file__).parents[2] / "data/fleets"
ANY_HOST = json.loads((FLEETS / "three.json").read_text())["hyper2"]
CONTENT = buildfacts.Content(
    images={IMAGE: BASE},
    user_files={},
    places={"system": Place(folder=Path("/images")), "data": Place(folder=Path("/pool"), pool="p")},
    taken_paths=frozenset(),
    boot={},
    seeding=buildfacts.SeedFacts(
        request=seedchoice.SeedRequest(image=IMAGE, method_name="nocloud")
    ),
)


def deployment(**given):
    """Return a call of virt.init with the host's part decided."""
    said = {"image": IMAGE, "disks": [{"name": "data", "size": 8}], **given}
    call = spec.deployment(HostSettings(), "web1", 1, 512, said)
    return replace(call, vm=replace(buildplan.apply_host_facts(call.vm, HOST), uuid="u1"))


def decided(content=CONTENT, **given):
    """Return the plan of a call."""
    return buildplan.decide(deployment(**given), HOST, content, "/images")


def test_a_plan_says_all_that_will_be_made_and_touches_nothing():
    made = decided()

    assert made.paths == ["/images/web1_system.qcow2", "/pool/web1_data.qcow2"] + [
        "/images/web1_seed.iso.qcow2"
    ]
    assert [(file.how, file.pool) for file in made.files] == [("overlay", None), ("empty", "p")]
    root = readdomain.domain(made.xml())
    assert [one["path"] for one in readdomain.disk_sources(root)] == made.paths
    assert (root.findtext("uuid"), root.get("type")) == ("u1", "kvm")
    shown = made.to_dict()
    assert (shown["seed"]["method"], shown["to_fetch"]) == ("nocloud", [])
    assert [disk["made"] for disk in shown["disks"]] == ["overlay", "empty"]
    assert not Path("/pool").exists()


def test_of_an_image_that_is_to_be_fetched_no_format_is_claimed():
    seeding = buildfacts.SeedFacts(request=seedchoice.SeedRequest(image=IMAGE))
    shown = decided(replace(CONTENT, images={IMAGE: None}, seeding=seeding)).to_dict()

    assert shown["to_fetch"] == [IMAGE]
    assert (shown["disks"][0]["path"], shown["disks"][0]["format"]) == (None, None)
    assert (shown["xml"], shown["seed"]["method"]) == (None, "auto")
    assert shown["files"] == ["/pool/web1_data.qcow2"]


def test_a_disk_is_copied_where_that_is_wanted():
    assert [file.how for file in decided(enable_qcow=False).files] == ["copy", "empty"]


@pytest.mark.parametrize(
    ("path", "what"), [("/pool/web1_data.qcow2", "disk"), ("/images/web1_seed.iso.qcow2", "seed")]
)
def test_what_is_there_already_is_never_written_over(path, what):
    with pytest.raises(StorageError, match=f"^{what} {path} already exists, but there is no VM"):
        decided(replace(CONTENT, taken_paths=frozenset({path})))


def test_a_users_own_file_is_used_and_not_made():
    mine = validation.ValidatedImage(path="/mine/d.raw", format="raw", size_bytes=MIB)
    given = [{"name": "data", "size": 8, "source_file": "/mine/d.raw"}]

    made = decided(replace(CONTENT, user_files={"data": mine}), disks=given)

    assert made.paths == ["/images/web1_system.qcow2", "/images/web1_seed.iso.qcow2"]
    assert (made.vm.disks[1].path, made.vm.disks[1].format) == ("/mine/d.raw", "raw")


def test_a_disk_over_a_users_own_base_is_an_overlay():
    mine = validation.ValidatedImage(path="/mine/b.raw", format="raw", size_bytes=MIB)
    given = [{"name": "data", "backing_store_path": "/mine/b.raw"}]

    made = decided(replace(CONTENT, user_files={"data": mine}), disks=given)

    assert (made.files[1].how, made.files[1].base) == ("overlay", mine)


@pytest.mark.parametrize(
    ("disk", "why"),
    [
        ({"name": "data"}, "has neither a size nor an image"),
        ({"name": "data", "size": 1, "format": "vdi"}, "format 'vdi'; qcow2 or raw"),
    ],
)
def test_a_disk_that_cannot_be_made_is_refused(disk, why):
    with pytest.raises(BadArgument, match=why):
        decided(disks=[disk])


def test_the_host_decides_what_was_left_open():
    vm = deployment().vm

    assert (vm.domain_type, vm.arch) == ("kvm", "x86_64")
    assert buildplan.apply_host_facts(replace(vm, domain_type="qemu"), HOST).domain_type == "qemu"
    without = replace(HOST, domain_types=DomainTypes(default=None, usable=[], why="no proof"))
    with pytest.raises(ReservationRefused, match="no proof"):
        buildplan.apply_host_facts(replace(vm, domain_type=None), without)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"host_devices": ["pci_0"]}, "'pci_0' is not a device of this host"),
        (
            {"interfaces": [{"name": "eth0", "filter": "clean-traffic"}]},
            "no filter 'clean-traffic' on this host; it has: none",
        ),
        (
            {"interfaces": [{"name": "x", "type": "hostdev", "source": "0000:03:00.0"}]},
            "no PCI device 0000:03:00.0 on this host",
        ),
    ],
)
def test_what_the_host_does_not_have_is_refused(given, why):
    with pytest.raises(BadArgument, match=why):
        deployment(**given)


def test_a_name_that_is_taken_is_refused():
    vm = deployment().vm
    info = told.info({**ANY_HOST, "vms": {"web1": {"state": "running"}}})

    with pytest.raises(NameTaken, match=r"called 'web1' exists on this host \(running\)"):
        buildplan.refuse(vm, HOST, info, spec.requirements(vm))


def test_a_dry_run_changes_nothing_and_shows_what_the_build_then_does(hypervisor):
    def everything():
        return sorted(str(path) for path in hypervisor.root.rglob("*"))

    with hypervisor.libvirt():
        before = everything()
        first = create.show(hypervisor.context, hypervisor.deployment())
        assert everything() == before
        assert first["to_fetch"] == [str(hypervisor.root / "image.qcow2")]

        hypervisor.init("web2")
        second = create.show(hypervisor.context, hypervisor.deployment())
        hypervisor.init()
        root = readdomain.domain((hypervisor.definitions / "web1.xml").read_text())

    assert second["to_fetch"] == []
    assert [one["path"] for one in readdomain.disk_sources(root)] == second["files"]
    assert all(os.path.exists(path) for path in second["files"])
    assert second["disks"][0]["base"].startswith(f"{hypervisor.settings.images}/base/")


def test_a_dry_run_refuses_what_the_build_would(hypervisor):
    (hypervisor.root / "images").mkdir()
    (hypervisor.root / "images" / "web1_data.qcow2").touch()
    with (
        hypervisor.libvirt(),
        pytest.raises(StorageError, match="web1_data.qcow2 is there already, and cannot be taken"),
    ):
        create.show(hypervisor.context, hypervisor.deployment())
