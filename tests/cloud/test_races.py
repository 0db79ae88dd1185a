"""Started as soon as they are seeded, many times: no disk is locked, none is seen unseeded."""

import pytest
from cloudkit import TINY, wait

pytestmark = pytest.mark.nightly
STARTS = 20


DEBIAN = "salt://images/debian-minion.qcow2"


@pytest.mark.parametrize(("method", "image"), [
    ("nocloud", TINY), ("guestfs", DEBIAN), ("credentials", DEBIAN),
])  # fmt: skip
def test_twenty_starts_in_a_row(cloud, method, image):
    cloud.purge_all()
    try:
        for number in range(STARTS):
            name = f"r{number}"
            done = cloud.call("hyper1", "virt.init", name, "1", "256", image,
                              f"seed_method={method}")  # fmt: skip
            assert done.code == 0, done.out + done.err
            wait("its console", lambda name=name: cloud.console("hyper1", name))
            cloud.local("hyper1", "virt.purge", name)
    finally:
        cloud.purge_all()
