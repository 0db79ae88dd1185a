"""The salt-cloud driver, loaded as Salt loads it; Salt itself is a fake."""

import importlib.util
import subprocess
from pathlib import Path

import onrecord
import pytest
import verdicts
from salt.exceptions import (
    SaltCloudConfigError,
    SaltCloudExecutionFailure,
    SaltCloudExecutionTimeout,
    SaltCloudSystemExit,
)
from saltvirt.core import locks
from saltvirt.core.journal import records
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import cloudvms
from saltvirt.storage import trash
from saltvirt.xml.edit import clone

URI = "test:///default"
FILE = Path(__file__).resolve().parents[3] / "_clouds/libvirt.py"
NIC = "<interface type='network'><source network='default'/></interface>"


class FakeSalt:
    """What Salt gives to a driver: a bootstrap and an event bus, which record their calls."""

    def __init__(self):
        self.fired, self.bootstrapped = [], []
        self.failure = None
        self.answer = {"deployed": True}

    def bootstrap(self, vm_, _opts):
        """Record the VM, or raise the failure of the test."""
        self.bootstrapped.append(dict(vm_))
        if self.failure:
            raise self.failure
        return self.answer

    def fire(self, _key, text, tag, args=None, **_bus):
        """Record an event."""
        self.fired.append((tag.removeprefix("salt/cloud/"), text, args))


def definition(name, path, nics=NIC):
    """Return the XML of a domain with a disk."""
    return (
        f"<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory>"
        "<os><type>hvm</type></os>"
        "<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{path}'/><target dev='vda' bus='virtio'/></disk>{nics}</devices></domain>"
    )


def disk(path, *backing):
    """Create a disk and return its path: libvirt's test driver creates no files."""
    path.parent.mkdir()
    size = () if backing else ("1M",)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, path, *size]
    subprocess.run(argv, check=True)
    return path


def pool_with(conn, name, path):
    """Define a pool for a disk's folder, and the disk's volume; return the pool."""
    xml = f"<pool type='dir'><name>{name}</name><target><path>{path.parent}</path></target></pool>"
    pool = conn.storagePoolDefineXML(xml)
    pool.create()
    pool.createXML(clone.volume(path.name, 1 << 20, "qcow2"))
    return pool


@pytest.fixture
def golden(tmp_path):
    """The disk of the base domain."""
    return disk(tmp_path / "golden/base.qcow2")


@pytest.fixture
def conn(conn, golden):
    """A connection with a base domain; the driver sees the same host while it is open."""
    pool_with(conn, "golden", golden)
    conn.defineXML(definition("base", golden))
    return conn


@pytest.fixture
def fake_salt():
    """The fake Salt that the driver calls."""
    return FakeSalt()


@pytest.fixture
def driver(conn, fake_salt):
    """The driver module, with the dunders that Salt's loader injects."""
    spec = importlib.util.spec_from_file_location("saltvirt_cloud_driver", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    profiles = {"small": {"provider": "here:libvirt", "profile": "small", "base_domain": "base"}}
    provider = {"driver": "libvirt", "url": URI, "profiles": profiles}
    module.__opts__ = {
        "providers": {"here": {"libvirt": provider}},
        "profiles": profiles,
        "sock_dir": "/nowhere",
        "transport": "zeromq",
        "query.selection": ["id", "state"],
    }
    module.__active_provider_name__ = "here:libvirt"
    module.__utils__ = {
        "cloud.fire_event": fake_salt.fire,
        "cloud.filter_event": lambda _tag, data, keys: {k: data[k] for k in keys if k in data},
        "cloud.bootstrap": fake_salt.bootstrap,
    }
    return module


def profile(**options):
    """Return the options that salt-cloud passes for a profile."""
    defaults = {"name": "web1", "base_domain": "base", "url": URI, "driver": "libvirt"}
    times = {"wait_for_ip_timeout": 1, "wait_for_ip_interval": 0.1}
    return {**defaults, **times, **options}


def vms(conn):
    """Return the names of all VMs."""
    return {domain.name() for domain in conn.listAllDomains()}


def volumes(conn):
    """Return the names of all volumes."""
    return {v.name() for v in conn.storagePoolLookupByName("golden").listAllVolumes()}


def test_the_driver_loads_only_with_a_libvirt_provider(driver):
    assert driver.__virtual__() == "libvirt"
    assert driver.get_configured_provider()["url"] == URI

    driver.__opts__["providers"] = {}
    assert driver.__virtual__() == (
        False,
        "salt-cloud has no provider with 'driver: libvirt' and a 'url'",
    )


def test_a_clone_is_started_found_and_bootstrapped(driver, conn, fake_salt):
    assert driver.create(profile()) == {"deployed": True}

    assert vms(conn) == {"test", "base", "web1"}
    (vm_,) = fake_salt.bootstrapped
    assert vm_["ssh_host"].startswith("192.168.122.")
    assert vm_["key_filename"] is None and vm_["private_key"] is None
    assert fake_salt.fired == [
        ("web1/creating", "starting create", {"name": "web1", "driver": "libvirt"}),
        (
            "web1/requesting",
            "requesting instance",
            {"kwargs": {"name": "web1", "base_domain": "base"}},
        ),
        ("web1/created", "created instance", {"name": "web1", "driver": "libvirt"}),
    ]


def test_a_vm_that_is_there_is_bootstrapped_again(driver, conn, fake_salt):
    driver.create(profile())
    first_volumes = volumes(conn)

    driver.create(profile())

    assert len(fake_salt.bootstrapped) == 2
    assert volumes(conn) == first_volumes


def test_a_clone_whose_bootstrap_reports_an_error_is_removed(driver, conn, fake_salt):
    fake_salt.answer = {"Error": {"Not Deployed": "Failed to start Salt on host web1"}}
    volumes_before = volumes(conn)

    with pytest.raises(SaltCloudSystemExit, match="'web1' was not bootstrapped: Failed to start"):
        driver.create(profile())

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, volumes_before)
    assert "web1/created" not in [tag for tag, *_more in fake_salt.fired]


def test_a_clone_that_is_not_to_be_bootstrapped_stays(driver, conn, fake_salt):
    fake_salt.answer = {"Error": {"No Deploy": "'deploy' is not enabled. Not deploying."}}

    assert driver.create(profile(deploy=False)) == fake_salt.answer
    assert "web1" in vms(conn)


@pytest.mark.parametrize("failure", [OSError("no ssh"), KeyboardInterrupt(), SystemExit(1)])
def test_a_clone_that_cannot_be_bootstrapped_is_removed(driver, conn, fake_salt, failure):
    fake_salt.failure = failure
    volumes_before = volumes(conn)

    with pytest.raises(type(failure)):
        driver.create(profile())

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, volumes_before)


def test_another_vm_that_took_the_name_meanwhile_is_not_removed(
    driver, conn, golden, fake_salt, monkeypatch
):
    def fails(*_args):
        dom = conn.lookupByName("web1")
        dom.destroy()
        dom.undefine()
        conn.defineXML(definition("web1", golden))
        raise OSError("no ssh")

    monkeypatch.setitem(driver.__utils__, "cloud.bootstrap", fails)
    with pytest.raises(OSError, match="no ssh"):
        driver.create(profile())

    assert "web1" in vms(conn)


def test_a_vm_that_was_there_before_stays_when_its_bootstrap_fails(driver, conn, fake_salt):
    driver.create(profile())
    fake_salt.failure = OSError("no ssh")

    with pytest.raises(OSError, match="no ssh"):
        driver.create(profile())

    assert "web1" in vms(conn)


@pytest.mark.slow
def test_a_clone_without_an_address_is_removed(driver, conn, golden):
    volumes_before = volumes(conn)

    conn.lookupByName("base").undefine()
    conn.defineXML(definition("base", golden, nics=""))
    with pytest.raises(SaltCloudExecutionTimeout):
        driver.create(profile(ip_source="qemu-agent"))

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, volumes_before)


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"clone_strategy": "fast"}, SaltCloudSystemExit, "must be one of quick or full"),
        ({"ip_source": "dns"}, SaltCloudSystemExit, "one of ip-learning or qemu-agent"),
        ({"validate_xml": "perhaps"}, SaltCloudExecutionFailure, "validate_xml"),
        ({"private_key": "/nowhere"}, SaltCloudConfigError, "there is no file /nowhere"),
        ({"name": "../x"}, SaltCloudExecutionFailure, "cannot name a VM"),
        ({"base_domain": "nobody"}, SaltCloudExecutionFailure, "no VM called 'nobody'"),
        ({"url": "test:///nowhere.xml"}, SaltCloudExecutionFailure, "does not answer"),
    ],
)
def test_wrong_options_are_refused_in_one_line_and_change_nothing(
    driver, conn, options, error, reason
):
    volumes_before = volumes(conn)

    with pytest.raises(error, match=reason) as raised:
        driver.create(profile(**options))

    assert "\n" not in str(raised.value)
    assert (vms(conn), volumes(conn)) == ({"test", "base"}, volumes_before)


def test_a_profile_that_is_not_configured_makes_nothing(driver, conn, fake_salt):
    del driver.__opts__["providers"]["here"]["libvirt"]["profiles"]["small"]["provider"]

    assert driver.create(profile(profile="small")) is False

    assert (vms(conn), fake_salt.fired) == ({"test", "base"}, [])


def test_a_vm_is_destroyed(driver, conn, fake_salt):
    driver.create(profile())
    fake_salt.fired.clear()

    assert driver.destroy("web1", call="action") is None

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, {"base.qcow2"})
    assert [tag for tag, _text, _args in fake_salt.fired] == ["web1/destroying", "web1/destroyed"]


def test_a_name_of_no_vm_or_of_two_is_not_destroyed(driver, conn, fake_salt):
    assert driver.destroy("nobody") == "nobody doesn't exist and can't be deleted"
    driver.__opts__["providers"]["there"] = driver.__opts__["providers"]["here"]
    assert driver.destroy("base") == "base doesn't identify a unique machine leaving things"

    assert (vms(conn), fake_salt.fired) == ({"test", "base"}, [])


def test_lists_are_called_as_functions_and_a_destroy_as_an_action(driver):
    for function in (driver.list_nodes, driver.list_nodes_full, driver.list_nodes_select):
        with pytest.raises(SaltCloudSystemExit, match="-f or --function"):
            function(call="action")
    with pytest.raises(SaltCloudSystemExit, match="-d, --destroy"):
        driver.destroy("base", call="function")


def test_lists_have_the_selected_fields(driver):
    assert driver.list_nodes_full() == driver.list_nodes()
    assert driver.list_nodes_select()["base"].keys() == {"id", "state"}

    del driver.__opts__["query.selection"]
    with pytest.raises(SaltCloudSystemExit, match="query.selection not found"):
        driver.list_nodes_select()


@pytest.fixture
def pool(driver, conn, tmp_path):
    """The pool with a VM's disk, which is the backing file of a disk in the trash."""
    driver.__opts__["virt"] = {"state_dir": str(tmp_path / "state")}
    backing_disk = disk(tmp_path / "vms/web1.qcow2")
    overlay = disk(tmp_path / "disks/top.qcow2", "-F", "qcow2", "-b", backing_disk)
    pool = pool_with(conn, "vms", backing_disk)
    conn.defineXML(definition("web1", backing_disk))
    settings = HostSettings(state_dir=str(tmp_path / "state"), trash_days=7)
    with trash.fill_trash(settings, "web2", reason="a test") as drop:
        drop(verdicts.free(overlay))
    return pool


def test_a_backing_file_of_a_disk_in_the_trash_stays(driver, conn, pool):
    assert driver.destroy("web1", call="action") is None

    assert "web1" not in vms(conn) and pool.listVolumes() == ["web1.qcow2"]


def test_a_disk_is_removed_once_the_trash_is_empty(driver, conn, pool, tmp_path):
    trash.empty(HostSettings(state_dir=str(tmp_path / "state")))

    assert driver.destroy("web1", call="action") is None

    assert "web1" not in vms(conn) and pool.listVolumes() == []


def test_a_backing_file_of_a_stopped_vms_disk_outside_pools_stays(driver, conn, pool, tmp_path):
    trash.restore(
        HostSettings(state_dir=str(tmp_path / "state"), uri=URI),
        *trash.list_entries(HostSettings(state_dir=str(tmp_path / "state"))),
    )
    conn.defineXML(definition("web3", tmp_path / "disks/top.qcow2"))

    assert driver.destroy("web1", call="action") is None

    assert "web1" not in vms(conn) and pool.listVolumes() == ["web1.qcow2"]


@pytest.mark.parametrize("purpose", ["build", "purge"])
def test_a_backing_file_of_a_vm_under_build_or_purge_stays(
    driver, pool, tmp_path, monkeypatch, purpose
):
    """Such a VM has no definition, and its disks are not in the trash."""
    settings = HostSettings(state_dir=str(tmp_path / "state"), uri=URI)
    trash.restore(settings, *trash.list_entries(settings))
    facts = getattr(onrecord, purpose)(paths=[str(tmp_path / "disks/top.qcow2")])
    phase = moveprotocol.MAKING if purpose == "build" else "removing"
    with records.hold_record(reservations.folder(settings), purpose, "web2") as record:
        record.begin("t1", phase, **facts)
    lock_states, destroy = [], cloudvms.destroy

    def destroyed(*of):
        lock_states.append(locks.is_held(tmp_path / "state/claims.lock"))
        return destroy(*of)

    monkeypatch.setattr(cloudvms, "destroy", destroyed)

    assert driver.destroy("web1", call="action") is None

    assert (pool.listVolumes(), lock_states) == (["web1.qcow2"], [True])


def test_nothing_is_removed_while_the_trash_cannot_be_read(driver, conn, pool, tmp_path):
    (tmp_path / "disks").rename(tmp_path / "away")

    reason = "VM 'web1' is not removed: entry 'web2-.*' of the trash may be based on it: .*: mount "
    with pytest.raises(SaltCloudExecutionFailure, match=reason):
        driver.destroy("web1", call="action")

    assert "web1" in vms(conn) and pool.listVolumes() == ["web1.qcow2"]


def test_nothing_is_removed_while_a_disk_of_another_vm_is_not_mounted(
    driver, conn, pool, golden, tmp_path
):
    trash.empty(HostSettings(state_dir=str(tmp_path / "state")))
    golden.parent.rename(golden.parent.with_name("away"))

    reason = f"VM 'web1' is not removed: a VM may be based on it: .* {golden} of VM 'base' .*mount "
    with pytest.raises(SaltCloudExecutionFailure, match=reason):
        driver.destroy("web1", call="action")

    assert "web1" in vms(conn) and pool.listVolumes() == ["web1.qcow2"]


@pytest.mark.parametrize("has_trash", [True, False])
def test_the_trash_of_another_machine_is_not_passed_over(
    driver, conn, pool, monkeypatch, has_trash
):
    # libvirt's test driver always runs on this machine.
    monkeypatch.setattr(config, "is_local", lambda _uri: False)
    if has_trash:
        pool.createXML(clone.volume(trash.FOLDER, 1 << 20, "raw"))
        with pytest.raises(SaltCloudExecutionFailure, match="pool 'vms'. may be .*virt.purge web1"):
            driver.destroy("web1", call="action")
        assert "web1" in vms(conn)
        return

    assert driver.destroy("web1", call="action") is None
    assert pool.listVolumes() == []
