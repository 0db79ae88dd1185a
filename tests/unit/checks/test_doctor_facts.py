"""What a host shows the doctor, and what it removes: never what is used, or on record."""

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
    named = [(tmp_path / kind, end, kind) for _folder, end, kind in unusedfiles._LIBVIRT_FILES]
    monkeypatch.setattr(unusedfiles, "_LIBVIRT_FILES", named)
    monkeypatch.setattr(localleftovers, "NETWORK_FOLDERS", (tmp_path / "network",))
    monkeypatch.setattr(localleftovers, "_UNITS", tmp_path / "units")
    monkeypatch.setattr(localleftovers, "_RULES", tmp_path / "rules")
    with hypervisor.libvirt():
        hypervisor.init()
    return hypervisor


def path_of(host, name):
    """Return the path of a file in the image folder."""
    return str(Path(host.settings.images) / name)


def old(path):
    """Have a file be quiet for two days."""
    os.utime(path, (time.time() - 2 * 86400,) * 2)


def forget(host, name="web1"):
    """Have libvirt forget a VM, as virsh undefine does; its files stay and are old."""
    with host.libvirt() as conn:
        lifecycle.undefine(conn, name)
    for one in host.files():
        old(path_of(host, one))


def look(host):
    """Return what the host shows."""
    with host.libvirt() as conn:
        return facts.read_host_facts(conn, {"extension_modules": "/nowhere"}, host.settings)


def shown(host):
    """Return ``[(kind, name)]`` of what nothing uses."""
    return [(one.kind, Path(one.path).name) for one in look(host).files]


def mended(host, **wanted):
    """Mend what is wanted; return what was done."""
    with host.libvirt() as conn:
        return localleftovers.mend(conn, host.settings, wanted)


def put(host, path):
    """Put a file into the trash, as the doctor advises; return its entry."""
    with host.libvirt() as conn:
        return putaway.put(conn, host.settings, str(path))["entry"]


def stays(host, *paths):
    """Have files not go into the trash."""
    for path in paths:
        with pytest.raises(StorageError, match="stays"):
            put(host, path)
        assert Path(path).exists()


LEFT = [("disk", "web1_data.qcow2"), ("seed", "web1_seed.iso.qcow2"), ("disk", "web1_system.qcow2")]


def test_a_host_with_a_vm_shows_it_and_nothing_that_is_left_over(built):
    said = look(built)

    assert list(said.vms) == ["web1"]
    assert said.made_for == ["web1"]
    assert (said.files, said.left, said.busy, said.moves) == ([], {}, [], [])


def test_files_of_a_vm_that_is_forgotten_are_shown_with_whose_they_are(built):
    uuid = look(built).vms["web1"].uuid

    forget(built)

    assert shown(built) == LEFT
    assert {(one.vm, one.uuid, one.is_shared) for one in look(built).files} == {
        ("web1", uuid, False)
    }


def test_a_vm_that_was_renamed_is_known_by_what_its_disks_are_called(built):
    text = (built.definitions / "web1.xml").read_text()
    (built.definitions / "web1.xml").unlink()
    (built.definitions / "new1.xml").write_text(text.replace("<name>web1<", "<name>new1<"))
    for name in built.files():
        ownermark.unmark(path_of(built, name))

    said = look(built)

    assert list(said.vms) == ["new1"]
    assert (said.made_for, said.files) == (["web1"], [])


def test_a_file_that_we_have_not_made_is_not_shown(built):
    forget(built)
    for name in ("mine.qcow2", "web1_mine.qcow2"):
        subprocess.run(["cp", "-a", path_of(built, "web1_data.qcow2"), path_of(built, name)])
    Path(path_of(built, "web1_link.qcow2")).symlink_to("web1_data.qcow2")

    assert shown(built) == LEFT


def test_what_an_operators_overlay_is_based_on_is_not_shown(built):
    forget(built)
    below, above = path_of(built, "web1_data.qcow2"), path_of(built, "mine.qcow2")
    subprocess.run(
        ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, above], check=True
    )

    assert shown(built) == LEFT[1:]
    stays(built, below)


def test_what_is_open_in_a_program_is_not_shown(built):
    forget(built)
    path = path_of(built, "web1_data.qcow2")
    argv = ["qemu-io", "-f", "qcow2", path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        while not diskpaths.is_open(path):
            assert program.poll() is None
            time.sleep(0.01)
        assert shown(built) == LEFT[1:]
        program.communicate(b"quit\n")

    assert shown(built) == LEFT


@pytest.mark.parametrize("purpose", ["build", "purge", "diskmove", "arrival", "departure"])
def test_what_is_on_record_is_not_shown(built, purpose):
    forget(built)
    path = path_of(built, "web1_data.qcow2")
    given = getattr(onrecord, purpose)(paths=[path])
    with records.hold_record(reservations.folder(built.settings), purpose, "web9") as held:
        held.begin("7" * 32, "cancelled" if purpose == "departure" else "making", **given)

    assert shown(built) == LEFT[1:]
    stays(built, path)
    assert "web9" in look(built).busy


def test_a_record_that_cannot_be_read_keeps_all_files(built):
    forget(built)
    broken = reservations.folder(built.settings) / "build/web9.json"
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_text("{")

    assert shown(built) == []
    stays(built, path_of(built, "web1_data.qcow2"))
    assert list(look(built).unreadable) == ["web9"]


@pytest.mark.parametrize("kind", ["disk", "seed", "nvram", "managed-save", "console-log"])
def test_what_no_record_says_was_given_up_is_never_removed(built, kind):
    forget(built)

    with pytest.raises(BadArgument, match=f"'{kind}' is not mended on its host"):
        mended(built, **{kind: [path_of(built, "web1_data.qcow2")]})

    assert len(built.files()) == 3


@pytest.mark.parametrize(("set_days", "days"), [(0, 7), (3, 3)])
def test_what_nothing_uses_can_be_put_into_the_trash_by_hand(built, set_days, days):
    built.settings = dataclasses.replace(built.settings, trash_days=set_days)
    forget(built)

    entry = put(built, path_of(built, "web1_data.qcow2"))

    row = trash.list_entries(built.settings)[entry]
    assert row["files"] == [path_of(built, "web1_data.qcow2")]
    assert (row["vm"], row["why"]) == ("web1", "virt.trash_put")
    (record,) = trash.read_entries(built.settings)
    assert record.facts["days"] == days
    assert built.files() == ["web1_seed.iso.qcow2", "web1_system.qcow2"]
    trash.restore(built.settings, entry)
    assert len(built.files()) == 3


def test_a_file_that_a_vm_has_is_not_put_into_the_trash(built):
    stays(built, path_of(built, "web1_data.qcow2"))


def test_what_libvirt_keeps_of_a_vm_that_is_gone_can_be_put_into_the_trash(built, tmp_path):
    nvram = tmp_path / "nvram/gone1_VARS.fd"
    nvram.parent.mkdir()
    nvram.write_text("variables")
    old(nvram)
    assert shown(built) == [("nvram", "gone1_VARS.fd")]

    entry = put(built, nvram)

    trash.restore(built.settings, entry)
    assert nvram.read_text() == "variables"


def plant(path):
    """Leave a file that is two days old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    old(path)
    return str(path)


def test_what_commands_that_died_have_left_is_shown_and_swept(built, tmp_path):
    state, images = Path(built.settings.state_dir), Path(built.settings.images)
    wanted = {
        "lock": [plant(state / "orders/77.lock")],
        "download": [plant(images / "base/0123.partial")],
        "mark": [plant(images / f".salt-virt-{'7' * 12}-{'8' * 12}")],
    }
    with records.hold_record(reservations.folder(built.settings), "build", "web9") as held:
        held.begin("9" * 32, "making", uuid="u1", paths=[], **onrecord.ROOM)
        plant(images / f".salt-virt-{'9' * 12}-{'8' * 12}")
    with records.hold_record(reservations.folder(built.settings), "arrival", "web8") as held:
        held.begin("6" * 32, "making", **onrecord.arrival(paths=[]))
        arriving = plant(images / f".salt-virt-{'6' * 12}-{'8' * 12}")
    assert look(built).left == {"unfinished": ["web9"], **wanted}

    done = mended(built, unfinished=["web9"], **wanted)

    assert len(done) == 4
    assert "lock" not in look(built).left
    assert not any(Path(path).exists() for paths in wanted.values() for path in paths)
    assert Path(arriving).exists()


def test_what_is_in_the_trash_by_no_record_is_shown(built):
    built.settings = dataclasses.replace(built.settings, trash_days=3)
    forget(built)
    put(built, path_of(built, "web1_data.qcow2"))
    assert "trash" not in look(built).left
    (record,) = (reservations.folder(built.settings) / trash.PURPOSE).glob("*.json")
    record.unlink()
    # Of somebody who died before anything was in it.
    (Path(built.settings.images) / trash.FOLDER / "web9-00000001").mkdir()

    (path,) = look(built).left["trash"]

    assert (Path(path) / "web1_data.qcow2").exists()


def test_half_a_firewall_is_shown(built, tmp_path, monkeypatch):
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
    before, now = plant(folder / "a"), folder / "b"
    now.touch()

    assert mended(built, token=[before, str(now)]) == ["token of VM a: removed"]
    assert [path.name for path in folder.iterdir()] == ["b"]


def test_a_library_that_is_there_twice_is_shown(tmp_path, monkeypatch):
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
        mended(built, key=["web1"])


def test_what_a_file_system_of_a_network_has_may_be_another_hosts(built, monkeypatch):
    path = path_of(built, "web1_data.qcow2")
    assert sharing.is_shared(built.settings, path) is False

    monkeypatch.setattr(sharing, "_file_systems_by_device", lambda: {_device(path): "nfs4"})

    assert sharing.is_shared(built.settings, path) is True
    assert path in look(built).shared


def _device(path):
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def test_a_file_that_is_not_there_has_no_mark(tmp_path):
    ownermark.mark(tmp_path / "nowhere", "a", "u")
    ownermark.unmark(tmp_path / "nowhere")

    assert ownermark.read_owner(tmp_path / "nowhere") is None


def test_a_program_that_ends_meanwhile_is_no_obstacle(tmp_path, monkeypatch):
    """A mock, as nobody can have a program end between two system calls of another."""
    ended, usual = [], Path.iterdir

    def listed(path):
        if str(path) == f"/proc/{os.getppid()}/fd":
            ended.append(path)
            raise FileNotFoundError(path)
        return usual(path)

    monkeypatch.setattr(Path, "iterdir", listed)

    with (tmp_path / "open").open("w") as handle:
        assert handle.name in unusedfiles._open_files()
    assert ended
