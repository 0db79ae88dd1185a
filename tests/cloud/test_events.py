"""The engine libvirt_events beside a real minion and a real libvirtd that is restarted."""

import pytest
from cloudkit import wait

HOST, VM = "hyper1", "told"
TAG = "salt/engines/libvirt_events/qemu/system/domain/lifecycle"
CONF = "etc/salt/minion.d/events.conf"
ENGINE = """
engines:
  - libvirt_events:
      uri: qemu:///system
      filters: [domain/lifecycle]
"""
XML = (
    f"<domain type='qemu'><name>{VM}</name><memory>65536</memory><os><type>hvm</type></os></domain>"
)


@pytest.fixture
def engine(cloud):
    """Hyper1 with the engine; nothing of it is left."""
    cloud.purge_all()
    cloud.local(HOST, "saltutil.sync_engines")
    conf = cloud.folder(HOST) / CONF
    conf.write_text(ENGINE)
    cloud.service(HOST, "salt-minion", "restart")
    cloud.ready([HOST])
    assert cloud.local(HOST, "virt.define_xml_str", XML) is True
    try:
        yield cloud
    finally:
        cloud.service(HOST, "libvirtd", "start")
        cloud.call(HOST, "virt.stop", VM)
        assert cloud.local(HOST, "virt.undefine", VM) is True
        conf.unlink()
        cloud.service(HOST, "salt-minion", "restart")
        cloud.ready([HOST])


def heard(cloud):
    """Start and stop the VM until the master's bus has an event of it, and return that."""

    def act():
        cloud.call(HOST, "virt.start", VM)
        cloud.call(HOST, "virt.stop", VM)

    return cloud.heard(TAG, act)


@pytest.mark.second_nightly
def test_events_reach_the_master_and_do_so_again_after_libvirtd_was_away(engine):
    assert f'"name": "{VM}"' in heard(engine)

    engine.service(HOST, "libvirtd", "stop")
    log = engine.folder(HOST) / "var/log/salt/minion"
    wait("the engine to say it", lambda: "libvirt does not answer at" in log.read_text())
    engine.service(HOST, "libvirtd", "start")

    assert f'"name": "{VM}"' in heard(engine)
