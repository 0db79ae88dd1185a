"""
Which half of a domain is here that libvirt moves.

The domains are played, with the states of libvirt 9's ends of a post-copy: the test driver migrates
nothing. The lab's own post-copy is cut in test_cut_postcopy.py.
"""

import libvirt
import pytest
from saltvirt.libvirt.domains import halves

RUNNING, PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED
ALONE = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
BY_HAND = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)
HERE = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY)
CUT_HERE = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED)
THERE = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY)
CUT_THERE = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED)
COMING = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)


class Domain:
    """A domain at one end of a migration, or of none."""

    def __init__(self, now, *, is_source, is_persistent):
        self._now, self._is_source, self._is_persistent = now, is_source, is_persistent

    def state(self):
        return [*self._now]

    def isActive(self):
        return 1

    def isPersistent(self):
        return int(self._is_persistent)

    def jobStats(self):
        if self._is_source:
            return {"type": 2, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}
        if self._now in (ALONE, BY_HAND):
            return {"type": libvirt.VIR_DOMAIN_JOB_NONE}
        error = libvirt.libvirtError("available only on the source host")
        error.err = (libvirt.VIR_ERR_OPERATION_UNSUPPORTED, 0, "", 0, "", "", "", 0, 0)
        raise error


@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize(
    ("now", "is_source", "is_arriving", "is_alone", "is_cut"),
    [
        (ALONE, False, False, True, False),
        (BY_HAND, False, False, True, False),
        (HERE, True, False, False, False),
        (CUT_HERE, True, False, False, True),
        (THERE, False, True, False, False),
        (CUT_THERE, False, True, False, True),
        (COMING, True, False, False, False),
    ],
)
def test_each_half_is_known_by_its_state(
    monkeypatch, now, is_source, is_arriving, is_alone, is_cut, is_persistent
):
    found = Domain(now, is_source=is_source, is_persistent=is_persistent)
    monkeypatch.setattr(halves, "domain", lambda *_: found)

    assert halves.is_arriving(None, "web") == is_arriving
    assert halves.runs_alone(None, "web") == is_alone
    assert halves.has_failed_postcopy(None, "web") == is_cut


@pytest.mark.parametrize("now", [COMING, CUT_HERE])
def test_what_is_paused_and_not_leaving_is_coming_unless_it_is_kept_here(monkeypatch, now):
    for is_kept in (False, True):
        found = Domain(now, is_source=False, is_persistent=is_kept)
        monkeypatch.setattr(halves, "domain", lambda *_, one=found: one)

        assert halves.is_arriving(None, "web") != is_kept
