"""An arrival is decided from facts: which files are made, and which images are sent first."""

import pytest
import told
from saltvirt.core.errors import StorageError
from saltvirt.migration.host import arrivalplan, sending
from saltvirt.migration.host.arrivalplan import ArrivalPlan, AwaitedImage, ComingFile, LocalFacts
from saltvirt.storage.images.validation import ValidatedImage

ISO = "/srv/tools.iso"
A, B = "a" * 64, "b" * 64
BASE = ValidatedImage(path=f"/srv/base/{A}.qcow2", format="qcow2", size_bytes=900)
IMAGE = {"source": "salt://a.qcow2", "file_bytes": 700}
SIZES = {"virtual_bytes": 1000, "actual_bytes": 1, "backing": None, "size_bytes": 400}
NOTHING = LocalFacts(present_media=frozenset(), images={}, incoming={})


def disk(name="vda", how="push", **said):
    """Return what another host says of a disk."""
    return {"target": name, "path": f"/srv/{name}", "how": how, **SIZES, **said}


def medium(**said):
    """Return what another host says of a medium."""
    return disk("sda", path=ISO, device="cdrom", format="raw", **said)


def moving(*disks, **said):
    """Return what another host says of a VM."""
    return told.moving(disks=list(disks), uuid="u1", **said)


def lacking(*digests):
    """Return the facts of a host that has no image, and where each is to be sent."""
    return LocalFacts(
        present_media=frozenset(),
        images=dict.fromkeys(digests),
        incoming={digest: f"/srv/base/{digest[0]}" for digest in digests},
    )


def test_what_is_sent_as_it_is_gets_a_file_of_its_size_and_what_libvirt_copies_a_disk():
    vm = moving(disk(), disk("vdb", "copy", format="raw"), disk("vdc", "shared"))

    assert arrivalplan.decide(vm, NOTHING) == ArrivalPlan(
        files=(
            ComingFile(path="/srv/vda", transfer="push", size_bytes=400),
            ComingFile(path="/srv/vdb", transfer="copy", size_bytes=1000, format="raw"),
        )
    )


def test_a_copy_is_made_over_the_image_that_is_here():
    here = LocalFacts(present_media=frozenset(), images={A: BASE}, incoming={})

    (file,) = arrivalplan.decide(moving(disk(how="copy", base=A)), here).files

    assert (file.format, file.size_bytes, file.base) == ("qcow2", 1000, BASE)


def test_a_disk_that_is_sent_needs_its_image_here_and_says_so_itself():
    here = LocalFacts(present_media=frozenset(), images={A: BASE}, incoming={})

    (file,) = arrivalplan.decide(moving(disk(base=A, image=IMAGE)), here).files

    assert file == ComingFile(path="/srv/vda", transfer="push", size_bytes=400)


def test_images_are_sent_before_anything_is_made_over_them():
    other = disk("vdc", "copy", base=B, image={**IMAGE, "file_bytes": 800})
    vm = moving(disk(base=A, image=IMAGE), disk("vdb", base=A, image=IMAGE), other)

    decided = arrivalplan.decide(vm, lacking(A, B))

    assert decided.images == (
        AwaitedImage(digest=A, path="/srv/base/a", size_bytes=700),
        AwaitedImage(digest=B, path="/srv/base/b", size_bytes=800),
    )
    assert decided.files == () and decided.image_paths == {A: "/srv/base/a", B: "/srv/base/b"}


def test_an_image_that_neither_host_knows_is_refused():
    with pytest.raises(StorageError, match="nothing is known of the image aaaaaaaaaaaaaaaa below"):
        arrivalplan.decide(moving(disk(base=A)), lacking(A))


@pytest.mark.parametrize(("how", "unknown"), [("push", "size_bytes"), ("copy", "virtual_bytes")])
def test_a_file_of_which_nobody_says_how_big_it_is_is_refused(how, unknown):
    with pytest.raises(StorageError, match="does not say how big /srv/vda is"):
        arrivalplan.decide(moving(disk(how=how, **{unknown: None})), NOTHING)


def test_a_medium_is_made_only_where_it_is_missing():
    vm, here = (
        moving(disk(), medium()),
        LocalFacts(present_media=frozenset([ISO]), images={}, incoming={}),
    )

    lacked, had = arrivalplan.decide(vm, NOTHING), arrivalplan.decide(vm, here)

    assert [file.path for file in lacked.files] == ["/srv/vda", ISO] and lacked.present_media == ()
    assert [file.path for file in had.files] == ["/srv/vda"] and had.present_media == (ISO,)


def test_a_medium_that_is_in_two_drives_is_made_and_sent_once():
    """The second time its file was there already, and no host took the VM."""
    both = moving(medium(), disk(), {**medium(), "target": "sdb"})

    plan = arrivalplan.decide(both, NOTHING)

    assert [one.path for one in plan.files] == [ISO, "/srv/vda"]
    assert [one.path for one in sending.find_pushed(both, ())] == [ISO, "/srv/vda"]


def test_what_the_firmware_noted_is_made_if_it_is_sent():
    sent, moved = (
        {"path": f"/srv/{how}.fd", "how": how, "size_bytes": 8, "actual_bytes": 8}
        for how in ("push", "copy")
    )

    (file,) = arrivalplan.decide(moving(nvram=[sent, moved]), NOTHING).files

    assert file == ComingFile(path="/srv/push.fd", transfer="push", size_bytes=8)


def test_what_is_on_record_before_anything_is_made():
    vm = moving(
        disk(),
        medium(),
        disk("vdb", "copy"),
        disk("vdc", "shared"),
        vcpus=2,
        memory_mib=512,
        affinity=["shop"],
    )

    facts = arrivalplan.initial_facts(vm, frozenset([ISO]), "hyper1")

    assert (facts.uuid, facts.source, facts.was_running) == ("u1", "hyper1", True)
    assert facts.sizes == {"/srv/vda": 400} and facts.virtual == {"/srv/vdb": ["qcow2", 1000]}
    assert (facts.vcpus, facts.memory_mib, facts.affinity) == (2, 512, ["shop"])
    assert (facts.paths, facts.images, facts.folders, facts.untouched) == ([], {}, [], None)
    assert arrivalplan.initial_facts(vm, frozenset(), None).sizes == {"/srv/vda": 400, ISO: 400}


def test_a_disk_that_its_source_could_not_measure_is_taken_as_it_comes():
    unmeasured = disk("vdb", "copy", virtual_bytes=None)
    others = disk("vdc", "copy", format="vmdk")

    facts = arrivalplan.initial_facts(
        moving(disk(how="copy"), unmeasured, others), frozenset(), "hyper1"
    )

    assert facts.virtual == {"/srv/vda": ["qcow2", 1000]}
