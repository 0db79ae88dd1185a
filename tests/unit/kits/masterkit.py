"""Hosts that are folders, and commands that are killed on the way."""

import itertools
from types import SimpleNamespace

import auditkit
import cellserver
import fleetkit
import keypairs
import playedhosts
import pytest
import setupkit
from saltvirt.ca.authorities import Authorities
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.journal import records
from saltvirt.migration.master import migrate


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    """Three hosts that are folders; ``init`` and ``purge`` of VM web."""
    # A killed command has not used a key pair that a later one uses again.
    keypairs.begin(ahead=2)
    return fleetkit.cloud(monkeypatch, opts, tmp_path)


@pytest.fixture
def said():
    """The messages that the user has read."""
    return []


@pytest.fixture
def run(opts, said):
    """A function that runs a workflow with a cloud."""

    def call(function, cloud, *args, **kwargs):
        def progress(stage, **figures):
            said.append(f"{stage} {figures.get('detail', '')}")

        return function(Cloud(opts=opts, settings=cloud, progress=progress), *args, **kwargs)

    return call


@pytest.fixture
def kill_at(monkeypatch, tmp_path):
    """A function that runs a command, which is killed at a point of its record."""

    def run(point, function, *args, **kwargs):
        monkeypatch.setenv(records.FAULTS, str(tmp_path / "faults"))
        (tmp_path / "faults").write_text(f"{point} kill")
        fleetkit.killed(function, *args, **kwargs)
        assert (tmp_path / "faults.reached").exists()

    return run


@pytest.fixture
def two(monkeypatch):
    """Two hosts; web is on the first."""
    hosts = playedhosts.clouds(monkeypatch)(2)
    hosts.put("web", "h1", autostart=True)
    return hosts


@pytest.fixture
def master(opts, two):
    """A master with both hosts as its own minions."""
    for host in two.hosts:
        minionkeys.accept(opts, host, "a key")
    return Cloud(opts=opts, settings=two, progress=lambda *_args, **_figures: None)


@pytest.fixture
def four_hosts(opts, monkeypatch):
    """Four hosts, and a master."""
    hosts = playedhosts.clouds(monkeypatch)(4)
    for host in hosts.hosts:
        minionkeys.accept(opts, host, "a key")
    count = itertools.count(1)
    monkeypatch.setattr(migrate.secrets, "token_hex", lambda _size: f"{next(count):016x}")
    hosts.master = Cloud(opts=opts, settings=hosts, progress=lambda *_args, **_figures: None)
    return hosts


@pytest.fixture(scope="session")
def signed(tmp_path_factory):
    """CAs, and the facts of two hosts with certificates of them; made once, as signing is slow."""
    place = Authorities(tmp_path_factory.mktemp("pki") / "libvirt")
    facts = {host: auditkit.host_facts(place, host) for host in auditkit.HOSTS}
    return SimpleNamespace(folder=place.folder, facts=facts)


@pytest.fixture
def world(opts, tmp_path, monkeypatch, signed):
    """A master and two hosts without findings of an audit."""
    return auditkit.World(opts, tmp_path, monkeypatch, signed)


@pytest.fixture
def setup(opts, tmp_path, monkeypatch):
    """A master and two hosts with all that VMs need."""
    return setupkit.Setup(opts, tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """The folder with a server's certificate, and its context."""
    folder = tmp_path_factory.mktemp("tls")
    return folder, cellserver.certified(folder)
