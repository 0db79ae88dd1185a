"""The driver of salt-cloud as Salt loads it; what Salt itself does, is played."""

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


class Played:
    """What Salt gives to a driver: its bootstrap, and a bus that remembers."""

    def __init__(self):
        self.fired, self.bootstrapped = [], []
        self.why_not = None
        self.said = {"deployed": True}

    def bootstrap(self, vm_, _opts):
        """Remember the VM, or fail."""
        self.bootstrapped.append(dict(vm_))
        if self.why_not:
            raise self.why_not
        return self.said

    def fire(self, _key, text, tag, args=None, **_bus):
        """Remember an event."""
        self.fired.append((tag.removeprefix("salt/cloud/"), text, args))


def definition(name, path, nics=NIC):
    """Return a domain with a disk."""
    return (
        f"<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory>"
        "<os><type>hvm</type></os>"
        "<devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{path}'/><target dev='vda' bus='virtio'/></disk>{nics}</devices></domain>"
    )


def disk(path, *backing):
    """Make a disk, as the test driver makes no files, and return its path."""
    path.parent.mkdir()
    size = () if backing else ("1M",)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, path, *size]
    subprocess.run(argv, check=True)
    return path


def pool_with(conn, name, path):
    """Define a pool of a disk's folder, and the disk's volume; return the pool."""
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
    """A libvirt with a base domain; it is the driver's too, as long as this is open."""
    pool_with(conn, "golden", golden)
    conn.defineXML(definition("base", golden))
    return conn


@pytest.fixture
def played():
    """What was asked of Salt."""
    return Played()


@pytest.fixture
def driver(conn, played):
    """The driver, with what Salt's loader puts into it."""
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
        "cloud.fire_event": played.fire,
        "cloud.filter_event": lambda _tag, data, keys: {k: data[k] for k in keys if k in data},
        "cloud.bootstrap": played.bootstrap,
    }
    return module


def profile(**more):
    """Return what salt-cloud makes of a profile."""
    given = {"name": "web1", "base_domain": "base", "url": URI, "driver": "libvirt"}
    times = {"wait_for_ip_timeout": 1, "wait_for_ip_interval": 0.1}
    return {**given, **times, **more}


def vms(conn):
    """Return the names of all VMs."""
    return {one.name() for one in conn.listAllDomains()}


def volumes(conn):
    """Return the names of all volumes."""
    return {v.name() for v in conn.storagePoolLookupByName("golden").listAllVolumes()}


def test_it_is_there_where_a_provider_has_it(driver):
    assert driver.__virtual__() == "libvirt"
    assert driver.get_configured_provider()["url"] == URI

    driver.__opts__["providers"] = {}
    assert driver.__virtual__() == (
        False,
        "salt-cloud has no provider with 'driver: libvirt' and a 'url'",
    )


def test_a_clone_is_started_found_and_bootstrapped(driver, conn, played):
    assert driver.create(profile()) == {"deployed": True}

    assert vms(conn) == {"test", "base", "web1"}
    (vm_,) = played.bootstrapped
    assert vm_["ssh_host"].startswith("192.168.122.")
    assert vm_["key_filename"] is None and vm_["private_key"] is None
    assert played.fired == [
        ("web1/creating", "starting create", {"name": "web1", "driver": "libvirt"}),
        (
            "web1/requesting",
            "requesting instance",
            {"kwargs": {"name": "web1", "base_domain": "base"}},
        ),
        ("web1/created", "created instance", {"name": "web1", "driver": "libvirt"}),
    ]


def test_a_vm_that_is_there_is_bootstrapped_again(driver, conn, played):
    driver.create(profile())
    there = volumes(conn)

    driver.create(profile())

    assert len(played.bootstrapped) == 2
    assert volumes(conn) == there


def test_a_bootstrap_that_says_that_it_has_failed_has_failed(driver, conn, played):
    played.said = {"Error": {"Not Deployed": "Failed to start Salt on host web1"}}
    before = volumes(conn)

    with pytest.raises(SaltCloudSystemExit, match="'web1' was not bootstrapped: Failed to start"):
        driver.create(profile())

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, before)
    assert "web1/created" not in [tag for tag, *_more in played.fired]


def test_a_clone_that_is_not_to_be_bootstrapped_stays(driver, conn, played):
    played.said = {"Error": {"No Deploy": "'deploy' is not enabled. Not deploying."}}

    assert driver.create(profile(deploy=False)) == played.said
    assert "web1" in vms(conn)


@pytest.mark.parametrize("failure", [OSError("no ssh"), KeyboardInterrupt(), SystemExit(1)])
def test_a_clone_that_cannot_be_bootstrapped_is_removed(driver, conn, played, failure):
    played.why_not = failure
    before = volumes(conn)

    with pytest.raises(type(failure)):
        driver.create(profile())

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, before)


def test_a_vm_that_has_got_the_name_since_is_not_removed(driver, conn, golden, played, monkeypatch):
    def fails(*_given):
        dom = conn.lookupByName("web1")
        dom.destroy()
        dom.undefine()
        conn.defineXML(definition("web1", golden))
        raise OSError("no ssh")

    monkeypatch.setitem(driver.__utils__, "cloud.bootstrap", fails)
    with pytest.raises(OSError, match="no ssh"):
        driver.create(profile())

    assert "web1" in vms(conn)


def test_a_vm_that_was_there_before_stays_when_its_bootstrap_fails(driver, conn, played):
    driver.create(profile())
    played.why_not = OSError("no ssh")

    with pytest.raises(OSError, match="no ssh"):
        driver.create(profile())

    assert "web1" in vms(conn)


@pytest.mark.slow
def test_a_clone_without_an_address_is_removed(driver, conn, golden):
    before = volumes(conn)

    conn.lookupByName("base").undefine()
    conn.defineXML(definition("base", golden, nics=""))
    with pytest.raises(SaltCloudExecutionTimeout):
        driver.create(profile(ip_source="qemu-agent"))

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, before)


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
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
def test_what_cannot_be_is_said_in_one_line_and_changes_nothing(driver, conn, wrong, error, why):
    before = volumes(conn)

    with pytest.raises(error, match=why) as raised:
        driver.create(profile(**wrong))

    assert "\n" not in str(raised.value)
    assert (vms(conn), volumes(conn)) == ({"test", "base"}, before)


def test_a_profile_that_is_not_configured_makes_nothing(driver, conn, played):
    del driver.__opts__["providers"]["here"]["libvirt"]["profiles"]["small"]["provider"]

    assert driver.create(profile(profile="small")) is False

    assert (vms(conn), played.fired) == ({"test", "base"}, [])


def test_a_vm_is_destroyed(driver, conn, played):
    driver.create(profile())
    played.fired.clear()

    assert driver.destroy("web1", call="action") is None

    assert (vms(conn), volumes(conn)) == ({"test", "base"}, {"base.qcow2"})
    assert [tag for tag, _text, _args in played.fired] == ["web1/destroying", "web1/destroyed"]


def test_who_is_nowhere_or_twice_is_not_destroyed(driver, conn, played):
    assert driver.destroy("nobody") == "nobody doesn't exist and can't be deleted"
    driver.__opts__["providers"]["there"] = driver.__opts__["providers"]["here"]
    assert driver.destroy("base") == "base doesn't identify a unique machine leaving things"

    assert (vms(conn), played.fired) == ({"test", "base"}, [])


def test_lists_are_called_as_functions_and_a_destroy_as_an_action(driver):
    for function in (driver.list_nodes, driver.list_nodes_full, driver.list_nodes_select):
        with pytest.raises(SaltCloudSystemExit, match="-f or --function"):
            function(call="action")
    with pytest.raises(SaltCloudSystemExit, match="-d, --destroy"):
        driver.destroy("base", call="function")


def test_lists_have_what_was_asked_for(driver):
    assert driver.list_nodes_full() == driver.list_nodes()
    assert driver.list_nodes_select()["base"].keys() == {"id", "state"}

    del driver.__opts__["query.selection"]
    with pytest.raises(SaltCloudSystemExit, match="query.selection not found"):
        driver.list_nodes_select()


@pytest.fixture
def kept(driver, conn, tmp_path):
    """A VM with a disk in a pool, on which is based one in the trash."""
    driver.__opts__["virt"] = {"state_dir": str(tmp_path / "state")}
    own = disk(tmp_path / "vms/web1.qcow2")
    top = disk(tmp_path / "disks/top.qcow2", "-F", "qcow2", "-b", own)
    pool = pool_with(conn, "vms", own)
    conn.defineXML(definition("web1", own))
    settings = HostSettings(state_dir=str(tmp_path / "state"), trash_days=7)
    with trash.fill_trash(settings, "web2", reason="a test") as drop:
        drop(verdicts.free(top))
    return pool


def test_a_disk_on_which_one_in_the_trash_is_based_stays(driver, conn, kept):
    assert driver.destroy("web1", call="action") is None

    assert "web1" not in vms(conn) and kept.listVolumes() == ["web1.qcow2"]


def test_a_disk_goes_once_the_trash_is_empty(driver, conn, kept, tmp_path):
    trash.empty(HostSettings(state_dir=str(tmp_path / "state")))

    assert driver.destroy("web1", call="action") is None

    assert "web1" not in vms(conn) and kept.listVolumes() == []


def test_a_disk_stays_that_a_vm_which_is_off_has_below_one_in_no_pool(driver, conn, kept, tmp_path):
    trash.restore(
        HostSettings(state_dir=str(tmp_path / "state"), uri=URI),
        *trash.list_entries(HostSettings(state_dir=str(tmp_path / "state"))),
    )
    conn.defineXML(definition("web3", tmp_path / "disks/top.qcow2"))

    assert driver.destroy("web1", call="action") is None

    assert "web1" not in vms(conn) and kept.listVolumes() == ["web1.qcow2"]


@pytest.mark.parametrize("purpose", ["build", "purge"])
def test_a_disk_stays_on_which_one_of_a_vm_that_is_made_or_purged_is_based(
    driver, kept, tmp_path, monkeypatch, purpose
):
    """Such a VM is not defined, and what it has is not in the trash."""
    settings = HostSettings(state_dir=str(tmp_path / "state"), uri=URI)
    trash.restore(settings, *trash.list_entries(settings))
    says = getattr(onrecord, purpose)(paths=[str(tmp_path / "disks/top.qcow2")])
    phase = moveprotocol.MAKING if purpose == "build" else "removing"
    with records.hold_record(reservations.folder(settings), purpose, "web2") as held:
        held.begin("t1", phase, **says)
    seen, destroy = [], cloudvms.destroy

    def destroyed(*of):
        seen.append(locks.is_held(tmp_path / "state/claims.lock"))
        return destroy(*of)

    monkeypatch.setattr(cloudvms, "destroy", destroyed)

    assert driver.destroy("web1", call="action") is None

    assert (kept.listVolumes(), seen) == (["web1.qcow2"], [True])


def test_nothing_is_removed_while_nobody_knows_what_the_trash_needs(driver, conn, kept, tmp_path):
    (tmp_path / "disks").rename(tmp_path / "away")

    reason = "VM 'web1' is not removed: entry 'web2-.*' of the trash may be based on it: .*: mount "
    with pytest.raises(SaltCloudExecutionFailure, match=reason):
        driver.destroy("web1", call="action")

    assert "web1" in vms(conn) and kept.listVolumes() == ["web1.qcow2"]


def test_nothing_is_removed_while_a_disk_of_another_vm_is_not_mounted(
    driver, conn, kept, golden, tmp_path
):
    trash.empty(HostSettings(state_dir=str(tmp_path / "state")))
    golden.parent.rename(golden.parent.with_name("away"))

    reason = f"VM 'web1' is not removed: a VM may be based on it: .* {golden} of VM 'base' .*mount "
    with pytest.raises(SaltCloudExecutionFailure, match=reason):
        driver.destroy("web1", call="action")

    assert "web1" in vms(conn) and kept.listVolumes() == ["web1.qcow2"]


@pytest.mark.parametrize("has_trash", [True, False])
def test_the_trash_of_another_machine_is_not_passed_over(
    driver, conn, kept, monkeypatch, has_trash
):
    # The test driver is always here.
    monkeypatch.setattr(config, "is_local", lambda _uri: False)
    if has_trash:
        kept.createXML(clone.volume(trash.FOLDER, 1 << 20, "raw"))
        with pytest.raises(SaltCloudExecutionFailure, match="pool 'vms'. may be .*virt.purge web1"):
            driver.destroy("web1", call="action")
        assert "web1" in vms(conn)
        return

    assert driver.destroy("web1", call="action") is None
    assert kept.listVolumes() == []
