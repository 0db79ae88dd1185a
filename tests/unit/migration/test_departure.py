"""A VM departs: its files are sent and removed, and no interruption loses the VM."""

import threading

import pytest
from endkit import UUID, is_untouched
from saltvirt.core import filecontent
from saltvirt.core.errors import NameTaken, StorageError, VirtError
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import departedvms
from saltvirt.libvirt.domains import lifecycle, migrate
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import departure
from saltvirt.storage import definitionfiles
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import purge


def test_a_stopped_vm_leaves_and_nothing_of_it_stays(end, conn):
    paths = end.make(conn)
    digests = {str(path): filecontent.digest(path) for path in paths}

    moving = end.begin()
    assert moving.uuid and end.phase("departure") == "planned"
    assert moving.wire == moveprotocol.WIRE
    end.send()

    assert end.phase("departure") == "handing"
    assert end.state(conn)["noted"]["digests"] == digests
    assert {path.name: filecontent.digest(path) for path in end.folder.glob("*.raw")} == {
        path.name: digests[str(path)] for path in paths
    }
    assert end.step("finish")["removed"] == sorted(map(str, paths))
    assert not any(path.exists() for path in paths) and not lifecycle.is_defined(conn, "web1")
    assert end.record("departure") is None
    with pytest.raises(NameTaken, match="'web1' moved from here to .*apply this state there"):
        departedvms.refuse_moved(end.settings, "web1")


def test_the_variables_of_its_firmware_leave_with_a_stopped_vm(end, conn):
    paths = end.make(conn, count=1)
    nvram_path = end.images / "web1_VARS.fd"
    nvram_path.write_bytes(b"boot order" + bytes(8182))
    loader = "<loader readonly='yes' type='pflash'>/usr/share/fw.fd</loader>"
    end.define(conn, firmware=f"{loader}<nvram>{nvram_path}</nvram>", paths=paths)

    moving = end.begin()
    end.send()

    assert [file.how for file in moving.nvram] == ["push"]
    assert (end.folder / "web1_VARS.fd").read_bytes() == nvram_path.read_bytes()
    assert str(nvram_path) in end.state(conn)["noted"]["digests"]
    assert end.step("finish")["removed"] == sorted(map(str, [nvram_path, *paths]))


@pytest.fixture
def left_file(end, conn, monkeypatch):
    """
    The file of the definition of a VM that is on its target, and that libvirt does not know here.

    libvirt 9 writes it when a block job of a VM ends that was undefined as it ran. The test driver
    has no such jobs, so libvirt forgets the VM, and its file stays.
    """
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", end.hypervisor.definitions)
    end.make(conn)
    end.begin()
    end.send()
    conn.lookupByName("web1").undefine()
    path = end.hypervisor.definitions / "web1.xml"
    assert "web1" in definitionfiles.find_not_loaded(conn)
    return path


def test_the_file_that_libvirt_writes_of_a_vm_without_a_definition_goes(end, conn, left_file):
    assert end.step("finish")["removed"]

    assert not left_file.exists() and not [*left_file.parent.iterdir()]
    assert definitionfiles.find_not_loaded(conn) == {}


def test_the_file_of_another_vm_of_that_name_stays(end, conn, left_file):
    text = left_file.read_text().replace(UUID, "11111111-2222-3333-4444-555555555555")
    for content in (text, "no XML", text.replace("web1", "web2")):
        left_file.write_text(content)

        definitionfiles.drop_leftover(conn, "web1", UUID)

        assert left_file.read_text() == content
    end.step("finish")
    assert left_file.exists()


def test_the_file_stays_while_the_target_does_not_have_the_vm(end, conn, left_file):
    (end.folder / "defined").unlink()

    with pytest.raises(VirtError, match="it is not defined there"):
        end.step("finish")

    assert left_file.exists()


def test_a_definition_that_comes_as_the_file_goes_is_put_back(end, conn, left_file, monkeypatch):
    content = left_file.read_text()
    answers = iter([set(), {"web1"}])
    # libvirt defines a VM between the two looks; nothing else of it is played.
    monkeypatch.setattr(definitionfiles.query, "names", lambda _conn: next(answers))

    definitionfiles.drop_leftover(conn, "web1", UUID)

    assert left_file.read_text() == content and len([*left_file.parent.iterdir()]) == 1


def test_a_write_while_a_file_is_sent_keeps_the_vm(end, conn):
    paths = end.make(conn)
    end.begin()

    def write():
        with open(paths[0], "r+b") as handle:
            handle.write(b"new")

    end.meanwhile = write
    with pytest.raises(MigrationFailed, match="web1_0.raw was written to while it was sent"):
        end.send()

    assert end.phase("departure") == "cancelled" and is_untouched(end, paths)
    assert not (end.folder / "defined").exists()


def test_a_disk_that_is_attached_while_it_is_sent_keeps_a_vm(end, conn):
    paths = end.make(conn)
    end.begin()
    more_paths = [*paths, end.images / "more.raw"]
    more_paths[-1].write_bytes(bytes(10))
    end.meanwhile = lambda: end.define(conn, paths=more_paths)

    with pytest.raises(MigrationFailed, match="it has other disks now"):
        end.send()
    assert end.phase("departure") == "cancelled" and is_untouched(end, paths)


def test_a_second_departure_is_refused_and_names_what_settles_the_first(end, conn):
    end.make(conn)
    end.begin()

    with pytest.raises(MigrationFailed, match="is planned already.* salt-run virt.settle web1"):
        end.begin("t2")
    end.send()
    with pytest.raises(VirtError, match="is handing already.* salt-run virt.settle web1"):
        end.begin("t2")
    assert end.record("departure").token == "t1"


def test_a_job_of_one_move_is_not_mistaken_for_one_of_another(end, conn):
    end.make(conn)
    end.begin()
    states = []
    end.meanwhile = lambda: states.append(
        [end.state(conn, token)["source"] for token in ("t1", "t2")]
    )
    end.send()

    first_state, second_state = states[0]
    assert (first_state["phase"], first_state["is_live"]) == ("sending", True)
    # Else a second master would wait for the first one's job, and report its own move as open.
    assert (second_state["phase"], second_state["is_live"], second_state["has"]) == (
        None,
        False,
        True,
    )


def test_only_the_token_of_a_move_ends_it(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()

    with pytest.raises(MigrationFailed, match="not on record here any more"):
        end.step("finish", token="t2")
    with pytest.raises(MigrationFailed, match="the other host decides"):
        end.step("cancel", seen="handing", is_refused=False)

    assert end.phase("departure") == "handing" and all(path.exists() for path in paths)


@pytest.mark.slow
def test_a_vm_that_was_handed_over_is_not_started_and_a_start_before_keeps_it(end, conn):
    paths = end.make(conn)
    end.begin()
    errors = []
    with startlock.allow_start(conn, end.settings, "web1"):
        thread = threading.Thread(target=lambda: errors.append(_error(end.send)))
        thread.start()
        thread.join(1)
        # The departure waits before it hands over, until the start of the VM is done.
        assert thread.is_alive() and end.phase("departure") == "sending"
        lifecycle.start(conn, "web1")
    thread.join(10)
    assert "it is running now" in errors[0] and is_untouched(end, paths)

    lifecycle.destroy(conn, "web1")
    end.step("forget")
    end.begin()
    end.send()
    with pytest.raises(startlock.OnItsWay, match="salt-run virt.settle web1"):
        is_untouched(end, paths)


def _error(work):
    try:
        return work()
    except VirtError as error:
        return str(error)


def test_a_vm_whose_move_fails_stays_if_it_runs_and_waits_if_not(end, conn):
    end.make(conn)

    def fail():
        raise MigrationFailed("cut")

    end.moving = fail
    end.begin()
    with pytest.raises(MigrationFailed, match="cut"):
        end.send()
    assert end.phase("departure") == "handing", "of a stopped one the other host decides"
    end.step("cancel", seen="handing", is_refused=True)
    end.step("forget")
    assert end.record("departure") is None

    lifecycle.start(conn, "web1")
    lifecycle.set_autostart(conn, "web1", "on")
    end.begin()
    with pytest.raises(MigrationFailed, match="cut"):
        end.send()
    assert end.phase("departure") == "cancelled"
    assert lifecycle.list_autostarted_domains(conn) == {"web1"}


def test_the_restored_autostart_flag_survives_a_crash(end, conn, monkeypatch):
    autostarted = []
    end.make(conn)
    lifecycle.set_autostart(conn, "web1", "on")
    end.begin()
    end.send()
    monkeypatch.setattr(
        definitionfiles,
        "settle_definitions",
        lambda: autostarted.append(lifecycle.list_autostarted_domains(conn)),
    )

    end.step("cancel", seen="handing", is_refused=True)

    assert autostarted == [{"web1"}]


def test_nothing_is_removed_that_the_target_lacks(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()
    (end.folder / "defined").unlink()

    with pytest.raises(MigrationFailed, match="nothing of it is removed here: it is not defined"):
        end.step("finish")
    assert all(path.exists() for path in paths) and end.phase("departure") == "handing"


def test_a_file_that_is_written_after_it_was_sent_is_not_removed(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()
    with open(paths[0], "r+b") as handle:
        handle.write(b"new")

    with pytest.raises(MigrationFailed, match="was written to after it was sent") as excinfo:
        end.step("finish")
    assert str(paths[0]) in str(excinfo.value) and end.phase("departure") == "handing"
    assert all(path.exists() for path in paths)
    paths[0].rename(end.images / "kept.raw")
    end.step("finish")

    assert (end.images / "kept.raw").exists() and not paths[1].exists()
    assert end.record("departure") is None


def test_a_definition_that_stays_here_has_files_that_may_be_written(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send(undefinesource=False)
    with open(paths[0], "r+b") as handle:
        handle.write(b"new")

    end.step("finish")

    assert paths[0].exists() and end.record("departure") is None


@pytest.mark.parametrize("leaves", [True, False])
def test_the_target_is_checked_for_what_was_handed_over(end, conn, monkeypatch, leaves):
    calls = []
    monkeypatch.setattr(
        migrate, "find_missing_on_target", lambda *_, **options: calls.append(options) or []
    )
    end.make(conn)
    end.begin()
    # The test driver reports this size for each disk.
    end.send(persistent=leaves)
    end.step("finish")

    (checked,) = calls
    assert checked["must_be_persistent"] is leaves and sorted(checked["handed_over_sizes"]) == [
        "vda",
        "vdb",
    ]
    assert min(checked["handed_over_sizes"].values()) > 2**39


def test_a_file_that_another_vm_uses_by_now_stays(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()
    end.define(conn, "db1", uuid="4dea22b3-1d52-d8f3-2516-782e98ab3fa1", paths=paths[:1])

    assert end.step("finish")["removed"] == [str(paths[1])]
    assert paths[0].exists()


def test_no_other_vm_gets_a_path_that_a_departure_is_still_to_remove(end, conn, monkeypatch):
    path = end.images / "web1_a_data.qcow2"
    end.images.mkdir()
    path.write_bytes(bytes(1000))
    end.define(conn, paths=[path])
    end.begin()
    end.send()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(departure.Departure, "end", _die)
        end.step("finish")
    assert end.phase("departure") == "leaving" and not path.exists()

    init_options = {
        "image": None,
        "disk": None,
        "seed": False,
        "disks": [{"name": "data", "size": 8}],
    }
    keyless = dict.fromkeys(("pub_key", "priv_key", "seed_method"))
    with pytest.raises(StorageError, match="a file of VM 'web1', .*salt-run virt.settle web1"):
        end.hypervisor.init("web1_a", **init_options, **keyless)
    end.step("finish")
    assert end.hypervisor.init("web1_a", **init_options, **keyless) is True and path.exists()


def _die(*_args):
    raise KeyboardInterrupt


def test_a_vm_whose_definition_is_gone_here_has_its_files_removed_all_the_same(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()
    lifecycle.undefine(conn, "web1")

    end.step("finish")

    assert not any(path.exists() for path in paths) and end.record("departure") is None


@pytest.mark.parametrize("options", [{"undefinesource": False}, {"persistent": False}])
def test_a_definition_that_is_kept_is_not_started_as_long_as_the_vm_is_elsewhere(
    end, conn, options
):
    paths = end.make(conn)
    end.begin()
    # The flag is set by hand after the move has begun.
    end.meanwhile = lambda: lifecycle.set_autostart(conn, "web1", "on")

    end.send(**options)
    assert end.state(conn)["noted"]["autostart"], "its target has it start with its new host"
    lifecycle.set_autostart(conn, "web1", "on")
    assert end.step("finish")["removed"] == []

    assert lifecycle.list_autostarted_domains(conn) == set() and end.record("departure") is None
    with pytest.raises(
        startlock.OnItsWay, match="moved to hyper2, and only its def.* virt.undefine"
    ):
        is_untouched(end, paths)
    xml = conn.lookupByName("web1").XMLDesc(0)
    uuid = conn.lookupByName("web1").UUIDString()
    # libvirt accepts each spelling of a UUID.
    for spelling in (uuid, uuid.upper(), uuid.replace("-", ""), f" {uuid} "):
        renamed_xml = xml.replace(uuid, spelling)
        with (
            pytest.raises(startlock.OnItsWay, match="moved to hyper2"),
            _creating(end, conn, renamed_xml),
        ):
            pytest.fail("it was started")
    with pytest.raises(MigrationFailed, match="moved to hyper2, and only its definition was kept"):
        end.begin("t2")
    # The message says to remove this attribute by hand.
    lifecycle.define(conn, xml.replace(' moved_to="hyper2"', "").replace(" moved_to='hyper2'", ""))
    assert is_untouched(end, paths)


def _creating(end, conn, xml):
    return startlock.allow_creation(conn, end.settings, xml)


def test_a_vm_that_has_gone_is_not_started(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()
    conn.lookupByName("web1").undefine()

    with pytest.raises(
        startlock.OnItsWay, match="handed over to hyper2.*salt-run virt.settle web1"
    ):
        is_untouched(end, paths)


def test_a_new_name_does_not_free_a_vm_that_is_on_its_way(end, conn):
    paths = end.make(conn)
    end.begin()
    end.send()
    xml = conn.lookupByName("web1").XMLDesc(0)
    conn.lookupByName("web1").undefine()
    lifecycle.define(conn, xml.replace(">web1<", ">web2<"))

    on_record = "'web2' .on record as 'web1'.*salt-run virt.settle web1"
    with pytest.raises(startlock.OnItsWay, match=on_record):
        is_untouched(end, paths, "web2")
    renamed = conn.lookupByName("web2").XMLDesc(0)
    for spelling in (UUID, UUID.upper(), UUID.replace("-", "")):
        xml_of_spelling = renamed.replace(UUID, spelling)
        with (
            pytest.raises(startlock.OnItsWay, match=on_record),
            _creating(end, conn, xml_of_spelling),
        ):
            pytest.fail("it was started")
    with pytest.raises(NameTaken, match=on_record):
        purge.purge(conn, end.settings, "web2")
    with pytest.raises(NameTaken, match=on_record):
        departure.begin(end.context, "web2", "t2", "hyper3")
    assert all(path.exists() for path in paths)

    end.step("finish")
    assert not any(path.exists() for path in paths) and not lifecycle.is_defined(conn, "web2")
