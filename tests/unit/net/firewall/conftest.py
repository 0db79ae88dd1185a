"""A network namespace, and a folder for what is kept of rules."""

import subprocess

import pytest
import salt.utils.systemd
from firewallkit import Space
from saltvirt.net.firewall import bootunits, iptables, nftables


@pytest.fixture
def space():
    """A network namespace that ends with the test."""
    with subprocess.Popen(Space.MAKE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if not process.stdout.readline():
            pytest.skip(f"no network namespace here: {process.communicate()[1].decode().strip()}")
        yield Space(process)
        process.kill()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that takes the rules; systemd, if it runs here, is not to be told of them."""
    for module in (bootunits, nftables, iptables):
        monkeypatch.setattr(module, "RULES", tmp_path / "rules")
    monkeypatch.setattr(bootunits, "UNITS", tmp_path / "units")
    monkeypatch.setattr(salt.utils.systemd, "booted", lambda: False)
    return tmp_path / "rules"
