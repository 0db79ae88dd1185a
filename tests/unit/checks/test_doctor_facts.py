"""A host shows the doctor its leftovers, and removes none that are used or on record."""

import dataclasses
import os
import subprocess
import time
from pathlib import Path

import onrecord
import pytest
from saltvirt.checks import installed
from saltvirt.checks.doctor.host import facts, localleftovers, unusedfiles
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import diskpaths, ownermark, putaway, sharing, trash

pytestmark = pytest.mark.slow


@pytest.fixture
def built(hypervisor, monkeypatch, tmp_path):
    """A host with one VM: an overlay, an empty disk, a seed; libvirt's own folders are empty."""
    folders = [(tmp_path / kind, end, kind) for _folder, end, kind in unusedfiles._LIBVIRT_FILES]
    monkeypatch.setattr(unusedfiles, "_LIBVIRT_FILES", folders)
    monkeypatch.setattr(localleftovers, "NETWORK_FOLDERS", (tmp_path / "network",))
    monkeypatch.setattr(localleftovers, "_UNITS", tmp_path / "units")
    monkeypatch.setattr(localleftovers, "_RULES", tmp_path / "rules")
    with hypervisor.libvirt():
        hypervisor.init()
    return hypervisor


def path_of(host, name):
    """Return the path of a file in the image folder."""
    return str(Path(host.settings.images) / name)


def make_old(path):
    """Set the times of a file back by two days."""
    os.utime(path, (time.time() - 2 * 86400,) * 2)


def undefine_quietly(host, name="web1"):
    """Undefine a VM, as virsh undefine does; its files stay, and are old."""
    with host.libvirt() as conn:
        lifecycle.undefine(conn, name)
    for name_of_file in host.files():
        make_old(path_of(host, name_of_file))


def look(host):
    """Return the facts of the host."""
    with host.libvirt() as conn:
        return facts.read_host_facts(conn, {"extension_modules": "/nowhere"}, host.settings)


def unused_files(host):
    """Return ``[(kind, name)]`` of files that nothing uses."""
    return [(file.kind, Path(file.path).name) for file in look(host).files]


def mend(host, **leftovers):
    """Mend these leftovers; return the outcomes."""
    with host.libvirt() as conn:
        return localleftovers.mend(conn, host.settings, leftovers)


def put_into_trash(host, path):
    """Put a file into the trash, as the doctor advises; return its entry."""
    with host.libvirt() as conn:
        return putaway.put(conn, host.settings, str(path))["entry"]


def assert_not_put_away(host, *paths):
    """Check that files cannot be put into the trash."""
    for path in paths:
        with pytest.raises(StorageError, match="stays"):
            put_into_trash(host, path)
        assert Path(path).exists()


LEFT = [("disk", "web1_data.qcow2"), ("seed", "web1_seed.iso.qcow2"), ("disk", "web1_system.qcow2")]


def test_a_host_with_a_vm_has_no_leftovers(built):
    host_facts = look(built)

    assert list(host_facts.vms) == ["web1"]
    assert host_facts.made_for == ["web1"]
    assert (host_facts.files, host_facts.left, host_facts.busy, host_facts.moves) == (
        [],
        {},
        [],
        [],
    )


def test_files_of_an_undefined_vm_are_shown_with_its_name(built):
    uuid = look(built).vms["web1"].uuid

    undefine_quietly(built)

    assert unused_files(built) == LEFT
    assert {(file.vm, file.uuid, file.is_shared) for file in look(built).files} == {
        ("web1", uuid, False)
    }


def test_a_renamed_vm_is_known_by_the_names_of_its_disks(built):
    text = (built.definitions / "web1.xml").read_text()
    (built.definitions / "web1.xml").unlink()
    (built.definitions / "new1.xml").write_text(text.replace("<name>web1<", "<name>new1<"))
    for name in built.files():
        ownermark.unmark(path_of(built, name))

    host_facts = look(built)

    assert list(host_facts.vms) == ["new1"]
    assert (host_facts.made_for, host_facts.files) == (["web1"], [])


def test_a_foreign_file_is_not_shown(built):
    undefine_quietly(built)
    for name in ("mine.qcow2", "web1_mine.qcow2"):
        subprocess.run(["cp", "-a", path_of(built, "web1_data.qcow2"), path_of(built, name)])
    Path(path_of(built, "web1_link.qcow2")).symlink_to("web1_data.qcow2")

    assert unused_files(built) == LEFT


def test_the_base_of_an_operators_overlay_is_not_shown(built):
    undefine_quietly(built)
    base_file, overlay_file = path_of(built, "web1_data.qcow2"), path_of(built, "mine.qcow2")
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base_file, overlay_file],
        check=True,
    )

    assert unused_files(built) == LEFT[1:]
    assert_not_put_away(built, base_file)


def test_a_file_that_a_program_has_open_is_not_shown(built):
    undefine_quietly(built)
    path = path_of(built, "web1_data.qcow2")
    argv = ["qemu-io", "-f", "qcow2", path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        while not diskpaths.is_open(path):
            assert program.poll() is None
            time.sleep(0.01)
        assert unused_files(built) == LEFT[1:]
        program.communicate(b"quit\n")

    assert unused_files(built) == LEFT


@pytest.mark.parametrize("purpose", ["build", "purge", "diskmove", "arrival", "departure"])
def test_files_in_open_records_are_not_shown(built, purpose):
    undefine_quietly(built)
    path = path_of(built, "web1_data.qcow2")
    facts_of_record = getattr(onrecord, purpose)(paths=[path])
    with records.hold_record(reservations.folder(built.settings), purpose, "web9") as record:
        record.begin(
            "7" * 32, "cancelled" if purpose == "departure" else "making", **facts_of_record
        )

    assert unused_files(built) == LEFT[1:]
    assert_not_put_away(built, path)
    assert "web9" in look(built).busy


def test_an_unreadable_record_protects_all_files(built):
    undefine_quietly(built)
    broken_record = reservations.folder(built.settings) / "build/web9.json"
    broken_record.parent.mkdir(parents=True, exist_ok=True)
    broken_record.write_text("{")

    assert unused_files(built) == []
    assert_not_put_away(built, path_of(built, "web1_data.qcow2"))
    assert list(look(built).unreadable) == ["web9"]


@pytest.mark.parametrize("kind", ["disk", "seed", "nvram", "managed-save", "console-log"])
def test_files_without_a_record_of_their_end_are_never_removed(built, kind):
    undefine_quietly(built)

    with pytest.raises(BadArgument, match=f"'{kind}' is not mended on its host"):
        mend(built, **{kind: [path_of(built, "web1_data.qcow2")]})

    assert len(built.files()) == 3


@pytest.mark.parametrize(("set_days", "days"), [(0, 7), (3, 3)])
def test_unused_files_can_be_put_into_the_trash_by_hand(built, set_days, days):
    built.settings = dataclasses.replace(built.settings, trash_days=set_days)
    undefine_quietly(built)

    entry = put_into_trash(built, path_of(built, "web1_data.qcow2"))

    row = trash.list_entries(built.settings)[entry]
    assert row["files"] == [path_of(built, "web1_data.qcow2")]
    assert (row["vm"], row["why"]) == ("web1", "virt.trash_put")
    (record,) = trash.read_entries(built.settings)
    assert record.facts["days"] == days
    assert built.files() == ["web1_seed.iso.qcow2", "web1_system.qcow2"]
    trash.restore(built.settings, entry)
    assert len(built.files()) == 3


def test_a_file_that_a_vm_has_is_not_put_into_the_trash(built):
    assert_not_put_away(built, path_of(built, "web1_data.qcow2"))


def test_libvirts_files_of_an_undefined_vm_can_be_put_into_the_trash(built, tmp_path):
    nvram = tmp_path / "nvram/gone1_VARS.fd"
    nvram.parent.mkdir()
    nvram.write_text("variables")
    make_old(nvram)
    assert unused_files(built) == [("nvram", "gone1_VARS.fd")]

    entry = put_into_trash(built, nvram)

    trash.restore(built.settings, entry)
    assert nvram.read_text() == "variables"


def plant(path):
    """Leave a file that is two days old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    make_old(path)
    return str(path)


def test_leftovers_of_killed_commands_are_shown_and_removed(built, tmp_path):
    state, images = Path(built.settings.state_dir), Path(built.settings.images)
    leftovers = {
        "lock": [plant(state / "orders/77.lock")],
        "download": [plant(images / "base/0123.partial")],
        "mark": [plant(images / f".salt-virt-{'7' * 12}-{'8' * 12}")],
    }
    with records.hold_record(reservations.folder(built.settings), "build", "web9") as record:
        record.begin("9" * 32, "making", uuid="u1", paths=[], **onrecord.ROOM)
        plant(images / f".salt-virt-{'9' * 12}-{'8' * 12}")
    with records.hold_record(reservations.folder(built.settings), "arrival", "web8") as record:
        record.begin("6" * 32, "making", **onrecord.arrival(paths=[]))
        arriving = plant(images / f".salt-virt-{'6' * 12}-{'8' * 12}")
    assert look(built).left == {"unfinished": ["web9"], **leftovers}

    outcomes = mend(built, unfinished=["web9"], **leftovers)

    assert len(outcomes) == 4
    assert "lock" not in look(built).left
    assert not any(Path(path).exists() for paths in leftovers.values() for path in paths)
    assert Path(arriving).exists()


def test_trash_without_a_record_is_shown(built):
    built.settings = dataclasses.replace(built.settings, trash_days=3)
    undefine_quietly(built)
    put_into_trash(built, path_of(built, "web1_data.qcow2"))
    assert "trash" not in look(built).left
    (record,) = (reservations.folder(built.settings) / trash.PURPOSE).glob("*.json")
    record.unlink()
    # The command was killed before it put a file into the entry.
    (Path(built.settings.images) / trash.FOLDER / "web9-00000001").mkdir()

    (path,) = look(built).left["trash"]

    assert (Path(path) / "web1_data.qcow2").exists()


def test_an_incomplete_firewall_is_shown(built, tmp_path, monkeypatch):
    monkeypatch.setattr(localleftovers.salt.utils.systemd, "booted", lambda: True)
    rules, units = tmp_path / "rules", tmp_path / "units"
    unit = "ExecStart=/usr/sbin/nft -f {}\n"
    for folder in (rules, units):
        folder.mkdir()
    for name in ("whole", "rules-only"):
        (rules / f"nftables-{name}.nft").touch()
    for name in ("whole", "unit-only"):
        path = units / f"salt-virt-nftables-{name}.service"
        path.write_text(unit.format(rules / f"nftables-{name}.nft"))
    (rules / "firewalld-a.rules").touch()
    (rules / "peers-a.json").touch()

    assert look(built).left["firewall"] == [
        str(rules / "nftables-rules-only.nft"),
        str(units / "salt-virt-nftables-unit-only.service"),
    ]


def test_a_token_is_removed_when_no_authorization_can_be_for_it(built):
    folder = Path(built.settings.state_dir) / "tokens"
    old_token, new_token = plant(folder / "a"), folder / "b"
    new_token.touch()

    assert mend(built, token=[old_token, str(new_token)]) == ["token of VM a: removed"]
    assert [path.name for path in folder.iterdir()] == ["b"]


def test_a_second_copy_of_the_library_is_shown(tmp_path, monkeypatch):
    for folder in ("extmods/utils", "site"):
        (tmp_path / folder / "saltvirt").mkdir(parents=True)
        (tmp_path / folder / "saltvirt/__init__.py").touch()
    monkeypatch.setattr(installed.sys, "path", [str(tmp_path / "extmods/utils"), "/nowhere"])
    opts = {"extension_modules": str(tmp_path / "extmods")}
    assert len(installed.find_copies(opts)) == 1

    monkeypatch.setattr(installed.sys, "path", [str(tmp_path / "site")])

    assert len(installed.find_copies(opts)) == 2


def test_a_check_that_no_host_mends_is_refused(built):
    with pytest.raises(BadArgument, match="'key' is not mended on its host"):
        mend(built, key=["web1"])


def test_files_on_a_network_file_system_may_be_another_hosts(built, monkeypatch):
    path = path_of(built, "web1_data.qcow2")
    assert sharing.is_shared(built.settings, path) is False

    monkeypatch.setattr(sharing, "_file_systems_by_device", lambda: {_device(path): "nfs4"})

    assert sharing.is_shared(built.settings, path) is True
    assert path in look(built).shared


def _device(path):
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def test_a_missing_file_has_no_owner_mark(tmp_path):
    ownermark.mark(tmp_path / "nowhere", "a", "u")
    ownermark.unmark(tmp_path / "nowhere")

    assert ownermark.read_owner(tmp_path / "nowhere") is None


def test_a_program_that_ends_during_the_scan_is_no_obstacle(tmp_path, monkeypatch):
    """The test uses a mock: no test can end a program between two system calls of another."""
    ended_programs, original_iterdir = [], Path.iterdir

    def listed(path):
        if str(path) == f"/proc/{os.getppid()}/fd":
            ended_programs.append(path)
            raise FileNotFoundError(path)
        return original_iterdir(path)

    monkeypatch.setattr(Path, "iterdir", listed)

    with (tmp_path / "open").open("w") as handle:
        assert handle.name in unusedfiles._open_files()
    assert ended_programs
