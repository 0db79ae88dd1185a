"""The units that load the firewall's rules: at each boot, and after a service empties them."""

import shutil
import subprocess

import pytest
import salt.utils.systemd
from saltvirt.core import undo
from saltvirt.network.firewall import bootunits

UNITS = bootunits.units(
    "salt-virt-nftables-t",
    "table inet t",
    [["-/bin/true", "x"], ["/bin/true"]],
    [["/bin/false"]],
    ["nftables.service"],
)
BOOT_UNIT, RELOAD_UNIT = UNITS


def test_the_units_come_before_the_network_and_after_the_service_that_empties_their_rules():
    for text in UNITS.values():
        for line in (
            "Before=network-pre.target shutdown.target",
            "Wants=network-pre.target",
            "ExecStart=-/bin/true x",
            "ExecStart=/bin/true",
            "DefaultDependencies=no",
            "StartLimitIntervalSec=0",
        ):
            assert line in text.splitlines()
    for line in (
        "After=nftables.service",
        "PartOf=nftables.service",
        "RemainAfterExit=yes",
        "ReloadPropagatedFrom=nftables.service",
        "ExecReload=-/bin/true x",
        "ExecReload=/bin/true",
        "ExecStop=-/bin/false",
        "WantedBy=sysinit.target",
    ):
        assert line in UNITS[BOOT_UNIT].splitlines()


def test_a_start_of_the_service_that_empties_the_rules_starts_the_reload_unit():
    lines = UNITS[RELOAD_UNIT].splitlines()

    for line in (
        "WantedBy=nftables.service",
        f"After=nftables.service {BOOT_UNIT}",
        f"Wants={BOOT_UNIT}",
    ):
        assert line in lines
    assert "RemainAfterExit=yes" not in lines and "ExecStop=-/bin/false" not in lines


def test_enabling_adds_our_links_beside_the_services_and_disabling_removes_them(tmp_path):
    if not shutil.which("systemctl"):
        pytest.skip("systemctl is not installed")
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    for name, text in UNITS.items():
        (folder / name).write_text(text)
    systemctl = ["systemctl", "-q", f"--root={tmp_path}"]

    subprocess.run([*systemctl, "enable", *UNITS], check=True)
    links = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_symlink()}
    assert links == {f"sysinit.target.wants/{BOOT_UNIT}", f"nftables.service.wants/{RELOAD_UNIT}"}
    subprocess.run([*systemctl, "disable", *UNITS], check=True)
    assert {p.name for p in folder.iterdir()} == set(UNITS)


def test_systemd_finds_no_fault_with_the_units(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    paths = [tmp_path / name for name in UNITS]
    for path in paths:
        path.write_text(UNITS[path.name])

    process = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths],
        capture_output=True,
        text=True,
        check=False,
    )

    assert [line for line in process.stderr.splitlines() if "salt-virt-" in line] == []
    assert process.returncode == 0, process.stderr


class Systemd:
    """A systemd that remembers what is enabled and what is active."""

    def __init__(self, *enabled, active=()):
        self.enabled, self.active, self.commands = set(enabled), set(active), []

    def run(self, argv, **_options):
        """Run a command of systemctl as the firewall's ``_run`` does."""
        _program, verb, *names = argv
        self.commands.append(" ".join(argv[1:]))
        if verb in ("is-enabled", "is-active"):
            is_so = names[0] in {"is-enabled": self.enabled, "is-active": self.active}[verb]
            return {"stdout": verb[3:] if is_so else "no"}
        {"enable": self.enabled.update, "start": self.active.update}.get(verb, list)(names)
        return {"stdout": ""}


@pytest.fixture
def rules_folder(tmp_path, monkeypatch):
    """A folder that takes the rules."""
    monkeypatch.setattr(bootunits, "RULES", tmp_path / "rules")
    return tmp_path / "rules"


@pytest.fixture
def units_folder(tmp_path, monkeypatch):
    """A host on which systemd runs, with the folder of its units."""
    monkeypatch.setattr(salt.utils.systemd, "booted", lambda: True)
    monkeypatch.setattr(bootunits, "UNITS", tmp_path / "units")
    bootunits.UNITS.mkdir()
    return bootunits.UNITS


def test_a_host_of_an_earlier_version_gets_the_second_unit(units_folder, rules_folder):
    (units_folder / BOOT_UNIT).write_text("of an earlier version")
    systemd = Systemd(BOOT_UNIT, active=[BOOT_UNIT])
    work = bootunits.BootUnits(systemd.run, UNITS, {rules_folder / "t.nft": "rules"})

    assert work.pending() == {
        str(rules_folder / "t.nft"): "written",
        str(units_folder / BOOT_UNIT): "written",
        str(units_folder / RELOAD_UNIT): "written",
        RELOAD_UNIT: "enabled",
    }
    with undo.on_failure() as steps:
        work.keep(steps)
    assert work.pending() == {}
    assert not any(command.startswith("start ") for command in systemd.commands)


def test_units_that_go_are_enabled_and_started_again_if_what_follows_fails(
    units_folder, rules_folder
):
    rules_folder.mkdir()
    (rules_folder / "t.nft").write_text("rules")
    for name, text in UNITS.items():
        (units_folder / name).write_text(text)
    systemd = Systemd(BOOT_UNIT, RELOAD_UNIT, active=[BOOT_UNIT])
    work = bootunits.BootUnits(systemd.run, UNITS, {rules_folder / "t.nft": "rules"})

    with pytest.raises(RuntimeError), undo.on_failure() as steps:
        work.forget(steps)
        assert not any(units_folder.iterdir()) and not rules_folder.exists()
        raise RuntimeError

    assert {path.name: path.read_text() for path in units_folder.iterdir()} == UNITS
    assert (rules_folder / "t.nft").read_text() == "rules"
    last = ["daemon-reload", f"enable {BOOT_UNIT} {RELOAD_UNIT}", f"start {BOOT_UNIT}"]
    assert systemd.commands[-3:] == last


def test_a_unit_that_was_started_is_stopped_if_what_follows_fails(units_folder, rules_folder):
    systemd = Systemd()
    work = bootunits.BootUnits(systemd.run, UNITS, {rules_folder / "t.nft": "rules"})

    with pytest.raises(RuntimeError), undo.on_failure() as steps:
        work.keep(steps)
        raise RuntimeError

    assert systemd.commands.index(f"start {BOOT_UNIT}") < systemd.commands.index(
        f"stop {BOOT_UNIT}"
    )
    assert not any(units_folder.iterdir()) and not rules_folder.exists()


def test_both_units_are_removed_or_the_only_one_of_an_earlier_version(units_folder, rules_folder):
    for names in (list(UNITS), [BOOT_UNIT]):
        systemd = Systemd()
        for name in names:
            (units_folder / name).write_text(UNITS[name])
        work = bootunits.BootUnits(systemd.run, UNITS, {})
        with undo.on_failure() as steps:
            work.forget(steps)

        assert f"disable --now {' '.join(names)}" in systemd.commands
        assert list(units_folder.iterdir()) == [] and work.there() == {}
