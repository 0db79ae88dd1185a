"""A network namespace, and a folder for the files of rules."""

import subprocess

import pytest
import salt.utils.systemd
from behindkit import CABLES, LISTEN, SIDES, Sides
from firewallkit import Space
from saltvirt.network.firewall import bootunits, iptables, nftables


@pytest.fixture
def space():
    """A network namespace that ends with the test."""
    with subprocess.Popen(Space.MAKE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if not process.stdout.readline():
            pytest.skip(f"no network namespace here: {process.communicate()[1].decode().strip()}")
        yield Space(process)
        process.kill()


@pytest.fixture
def rules_folder(tmp_path, monkeypatch):
    """A folder for the rules; systemd, if it runs here, does not load them."""
    for module in (bootunits, nftables, iptables):
        monkeypatch.setattr(module, "RULES", tmp_path / "rules")
    monkeypatch.setattr(bootunits, "UNITS", tmp_path / "units")
    monkeypatch.setattr(salt.utils.systemd, "booted", lambda: False)
    return tmp_path / "rules"


@pytest.fixture
def sides(space, tmp_path):
    """A host with a guest and a hypervisor behind it, and a peer that listens."""
    result = space.run_all(["sh", "-c", CABLES, str(tmp_path)])
    pids = [path.read_text().strip() for side in SIDES if (path := tmp_path / side)]
    try:
        assert result["retcode"] == 0, result
        code = LISTEN.format(ready=tmp_path / "ready")
        peer = ["nsenter", "-t", pids[1], "-n"]
        wait = f"while ! [ -e {tmp_path}/ready ]; do sleep .02; done"
        script = f"{' '.join(peer)} python3 -c \"$0\" >/dev/null 2>&1 & echo $!; {wait}"
        listener_pid = space.run_all(["sh", "-c", script, code])["stdout"].strip()
        pids.append(listener_pid)
        yield Sides(space, tmp_path)
    finally:
        space.run_all(["kill", "-9", *pids])
