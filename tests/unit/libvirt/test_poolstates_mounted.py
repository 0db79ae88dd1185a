"""A mounted pool is not restarted each time for the permissions of what is mounted there."""

import libvirt
import pytest
from saltvirt.libvirt.storage import poolstates

SHARE = """<pool type='netfs'><name>share</name><uuid>dfe224cb-28fb-8dd0-c4b2-64eb3f0f4566</uuid>
<source><host name='{}'/><dir path='/export'/><format type='nfs'/></source><target>
<path>/mnt/share</path><permissions><mode>0755</mode><owner>65534</owner></permissions></target>
</pool>"""


class Mounted:
    """libvirt with a mounted pool: it reports the permissions of the export's folder."""

    def __init__(self):
        self.done, self.defined, self.runs = [], None, True

    def storagePoolLookupByName(self, _name):  # noqa: N802
        return self

    def storagePoolDefineXML(self, text, _flags):  # noqa: N802
        self.defined = text

    def XMLDesc(self, flags):  # noqa: N802
        is_next = flags & libvirt.VIR_STORAGE_XML_INACTIVE and self.defined
        return self.defined if is_next else SHARE.format("nas")

    def isActive(self):  # noqa: N802
        return self.runs

    def isPersistent(self):  # noqa: N802
        return True

    autostart = isPersistent

    def __getattr__(self, name):
        return lambda *_args: self.done.append(name)


def request(host="nas"):
    return poolstates.PoolStateRequest(
        name="share",
        ptype="netfs",
        target="/mnt/share",
        permissions={"mode": "0711", "owner": 0},
        source={"hosts": [host], "dir": "/export", "format": "nfs"},
        runs=True,
    )


def test_a_mounted_pool_with_permissions_is_left_alone():
    share = Mounted()

    plan = poolstates.plan(share, request())
    poolstates.apply(share, plan)

    assert (plan.parts, share.done) == ([], [])


@pytest.mark.parametrize(
    ("runs", "parts"),
    [(True, ["updated", "built", "restarted"]), (False, ["updated", "built", "started"])],
)
def test_another_difference_is_changed_and_the_mount_point_is_built(runs, parts):
    share = Mounted()
    share.runs = runs

    plan = poolstates.plan(share, request("nas2"))
    poolstates.apply(share, plan)

    assert plan.parts == parts
    assert "<mode>0711</mode>" in share.defined
