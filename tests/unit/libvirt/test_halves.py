"""
Which half of a migrating domain is on this host.

The domains are stand-ins with the states that libvirt 9 reports at the ends of a post-copy: the
test driver migrates nothing. test_cut_postcopy.py cuts a real post-copy in the lab.
"""

import libvirt
import pytest
from saltvirt.libvirt.domains import halves

RUNNING, PAUSED = libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_PAUSED
ALONE = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
BY_HAND = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER)
ON_SOURCE = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY)
CUT_ON_SOURCE = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED)
ON_TARGET = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY)
CUT_ON_TARGET = (RUNNING, libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED)
COMING = (PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION)


class Domain:
    """A domain at one end of a migration, or outside of one."""

    def __init__(self, state, *, is_source, is_persistent):
        self._state, self._is_source, self._is_persistent = state, is_source, is_persistent

    def state(self):
        return [*self._state]

    def isActive(self):
        return 1

    def isPersistent(self):
        return int(self._is_persistent)

    def jobStats(self):
        if self._is_source:
            return {"type": 2, "operation": libvirt.VIR_DOMAIN_JOB_OPERATION_MIGRATION_OUT}
        if self._state in (ALONE, BY_HAND):
            return {"type": libvirt.VIR_DOMAIN_JOB_NONE}
        error = libvirt.libvirtError("available only on the source host")
        error.err = (libvirt.VIR_ERR_OPERATION_UNSUPPORTED, 0, "", 0, "", "", "", 0, 0)
        raise error


@pytest.mark.parametrize("is_persistent", [False, True])
@pytest.mark.parametrize(
    ("state", "is_source", "is_arriving", "is_alone", "is_cut"),
    [
        (ALONE, False, False, True, False),
        (BY_HAND, False, False, True, False),
        (ON_SOURCE, True, False, False, False),
        (CUT_ON_SOURCE, True, False, False, True),
        (ON_TARGET, False, True, False, False),
        (CUT_ON_TARGET, False, True, False, True),
        (COMING, True, False, False, False),
    ],
)
def test_each_half_is_known_by_its_state(
    monkeypatch, state, is_source, is_arriving, is_alone, is_cut, is_persistent
):
    vm = Domain(state, is_source=is_source, is_persistent=is_persistent)
    monkeypatch.setattr(halves, "domain", lambda *_: vm)

    assert halves.is_arriving(None, "web") == is_arriving
    assert halves.runs_alone(None, "web") == is_alone
    assert halves.has_failed_postcopy(None, "web") == is_cut


@pytest.mark.parametrize("state", [COMING, CUT_ON_SOURCE])
def test_a_paused_domain_that_is_not_leaving_arrives_unless_it_is_persistent(monkeypatch, state):
    for is_persistent in (False, True):
        vm = Domain(state, is_source=False, is_persistent=is_persistent)
        monkeypatch.setattr(halves, "domain", lambda *_, bound_vm=vm: bound_vm)

        assert halves.is_arriving(None, "web") != is_persistent
