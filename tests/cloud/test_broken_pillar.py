"""A pillar of the master that cannot be rendered: no VM is lost by it, and no move is stuck."""

import pytest
from cloudkit import TINY

pytestmark = pytest.mark.nightly
REFUSED = "nothing is changed on this host while its pillar has errors ("


@pytest.fixture
def trashing(clean):
    """A lab whose hyper1 has a trash by its pillar, and two VMs that do not run."""
    with clean.pillar("hyper1", {"virt": {"trash_days": 7}}):
        for name in ("kept1", "moved1"):
            words = (name, "1", "64", TINY, "seed=False", "start=False", "host=hyper1")
            assert clean.run("virt.init", *words).code == 0
        yield clean
        clean.run("virt.settle")
        for name in ("kept1", "moved1"):
            clean.run("virt.purge", name)
        clean.run("virt.trash_empty")


@pytest.fixture
def spoil(trashing):
    """Return a function that has the file of hyper1's pillar end in an error of its template."""
    path = trashing.folder("master") / "srv/pillar/added.sls"
    before = path.read_text()

    def put(text):
        path.write_text(before + text)
        trashing.salt("hyper1", "saltutil.refresh_pillar", "wait=True")

    yield lambda: put("\n{% if %}\n")
    put("")


def test_nothing_is_lost_and_what_was_begun_is_finished(trashing, spoil):
    cloud = trashing
    assert cloud.salt("hyper1", "virt.migrate_begin", "moved1", "t1", "hyper2").code == 0
    spoil()

    # What changes something is refused, by whatever way, and says why.
    assert REFUSED in cloud.salt("hyper1", "virt.purge", "kept1").out
    assert REFUSED in cloud.run("virt.purge", "kept1").out
    assert REFUSED in cloud.run("virt.migrate", "kept1", "hyper2").out
    assert "kept1" in cloud.salt("hyper1", "virt.list_domains").data["hyper1"]
    assert REFUSED in cloud.run("virt.audit").out

    # A new VM goes to another host.
    assert cloud.run("virt.init", "new1", "1", "64", TINY, "seed=False", "start=False").code == 0
    assert "new1" not in cloud.salt("hyper1", "virt.list_domains").data["hyper1"]
    assert REFUSED in cloud.run("virt.migrate", "new1", "hyper1").out
    assert cloud.run("virt.purge", "new1").code == 0

    # The move that was under way is settled, and its VM is where it was.
    assert cloud.run("virt.settle", "moved1").code == 0
    assert cloud.salt("hyper1", "virt.migration_state", "moved1").data["hyper1"] in ({}, None)
    assert "moved1" in cloud.salt("hyper1", "virt.list_domains").data["hyper1"]

    # A local call has no pillar, and heeds the trash all the same.
    cloud.sh("hyper1", "salt-call --local virt.purge kept1")
    (entry,) = cloud.run("virt.trash").data["hyper1"].values()
    assert entry["vm"] == "kept1"
