"""A volume that is to be larger and is no file is not grown, and that is said."""

import libvirt
import pytest
from saltvirt.vm.update.host import apply, request
from test_update_calls import DEFAULTS
from updatekit import IDLE

POOL = """<pool type='logical'><name>vg1</name><source><name>vg1</name></source>
<target><path>/dev/vg1</path></target></pool>"""
VOLUME = "<volume><name>web1_data</name><capacity unit='MiB'>{}</capacity></volume>"
VM = """<domain type='test'><name>web1</name><memory unit='MiB'>64</memory>
<os><type arch='i686'>hvm</type></os><on_reboot>restart</on_reboot><devices>
<disk type='volume' device='disk'><driver name='qemu' type='raw'/>
<source pool='vg1' volume='web1_data'/><target dev='vda' bus='virtio'/></disk></devices></domain>"""


@pytest.fixture
def update(hypervisor):
    """Return a function that updates a VM with a logical volume of 100 MiB as its disk."""
    with hypervisor.libvirt() as conn:
        pool = conn.storagePoolDefineXML(POOL)
        pool.create()
        pool.createXML(VOLUME.format(100))
        conn.defineXML(VM)

        def call(**asked):
            given = {**DEFAULTS, "stop_on_reboot": None, **asked}
            wanted = request.from_call(hypervisor.settings, "web1", given)
            return apply.update(hypervisor.context, wanted)

        call.pool = pool
        yield call
        for volume in pool.listAllVolumes() if pool.isActive() else ():
            volume.delete()
        if pool.isActive():
            pool.destroy()
        pool.undefine()
        del call.pool


def data(size):
    return {"disks": [{"name": "data", "pool": "vg1", "size": size}]}


@pytest.mark.parametrize("test", [False, True])
def test_a_logical_volume_that_is_to_be_larger_is_said_not_to_be(update, test):
    answer = update(**data(200), test=test)

    assert answer["errors"] == [
        "disk 'data' has 100.0M, and the call gives 200.0M: a volume such as "
        "vg1/web1_data is not grown "
        "here; grow it by virt.volume_resize vg1 web1_data 200, or where it is served, and then "
        "virt.pool_refresh vg1"
    ]


@pytest.mark.parametrize("size", [90, 100, 101])
def test_one_that_has_its_size_or_nearly_is_left_alone(update, size):
    assert update(**data(size)) == IDLE


def test_one_of_a_pool_that_does_not_run_is_left_alone(update):
    update.pool.destroy()

    assert update(**data(200)) == IDLE


def test_a_running_vm_has_it_as_large_as_its_guest_sees_it(update, monkeypatch):
    monkeypatch.setattr(libvirt.virDomain, "blockInfo", lambda *_: [200 << 20, 0, 0])
    monkeypatch.setattr(apply.changing, "running", lambda *_: VM)

    assert update(**data(200)) == IDLE
