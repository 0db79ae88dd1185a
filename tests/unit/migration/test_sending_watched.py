"""
libvirt's migration is watched: it is ended if it makes no progress, and its end is reported.

The domains are stand-ins: no libvirt refuses post-copy on demand, or ends a job only when it is
over, and the test driver has no jobs.
"""

import threading
from types import SimpleNamespace

import libvirt
import pytest
from saltvirt.core.model import Move
from saltvirt.libvirt.domains import migrate
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.migration.host import sending

DATA = {"type": libvirt.VIR_DOMAIN_JOB_UNBOUNDED, "memory_processed": 4096}


class Domain:
    """A domain with a migration that goes on until it is ended, or until the guest has moved."""

    def __init__(self, *, passes=0, postcopy=None, ends="aborted"):
        self.passes, self.postcopy, self.ends = passes, postcopy, ends
        self.asked, self._over = [], threading.Event()

    def migrateToURI3(self, *_args):
        assert self._over.wait(10), "nobody has ended it"
        if self.ends == "aborted":
            raise libvirt.libvirtError("operation aborted: canceled by client")

    def jobStats(self):
        return {**DATA, "memory_iteration": self.passes}

    def migrateStartPostCopy(self):
        self.asked.append("post-copy")
        if self.postcopy is not None:
            raise self.postcopy
        self._over.set()

    def abortJob(self):
        self.asked.append("abort")
        if self.ends == "refused":
            raise libvirt.libvirtError("the monitor does not answer")
        self._over.set()

    def release(self):
        """Let the migration end by itself."""
        self._over.set()


@pytest.fixture
def watch(monkeypatch):
    """A function that watches the migration of a domain; the migration ends with the test."""
    vms = []

    def run(vm, **options):
        vms.append(vm)
        monkeypatch.setattr(migrate, "domain", lambda *_: vm)
        job = migrate.Job(None, None, "web1", "qemu+tls://hyper2/system", {}, 0)
        context = SimpleNamespace(progress=lambda *_, **__: None)
        return sending.watch_transfer(context, job, "web1", Move(**options))

    yield run
    for vm in vms:
        vm.release()


def test_a_move_whose_post_copy_cannot_start_is_ended(watch):
    vm = Domain(passes=4, postcopy=libvirt.libvirtError("post-copy is not allowed"))

    with pytest.raises(libvirt.libvirtError, match="post-copy is not allowed"):
        watch(vm, postcopy=True, postcopy_after=3)

    assert vm.asked == ["post-copy", "abort"]


def test_a_guest_that_runs_on_the_target_by_post_copy_is_waited_for(watch):
    vm = Domain(passes=4, ends="moved")

    # Both limits have passed. From then on only the end of post-copy saves the guest.
    last = watch(vm, postcopy=True, postcopy_after=3, limit_s=3600, stall_s=60)

    assert vm.asked == ["post-copy"] and last["passes"] == 4


def test_a_move_without_progress_is_ended_and_its_error_names_where_to_look(watch):
    vm = Domain()

    with pytest.raises(MigrationFailed, match="stays where it is: nothing has moved for 0 s; look"):
        watch(vm, stall_s=0)

    assert vm.asked == ["abort"]


def test_reported_progress_never_goes_back(monkeypatch):
    reports = []
    clock = iter(range(0, 100, 3))
    monkeypatch.setattr(sending.time, "monotonic", lambda: next(clock))
    pace = sending._Pace(lambda _stage, **figures: reports.append(figures), Move())

    # Each pass over a busy guest's memory has its own total.
    for percent, passes in ((40, 1), (90, 1), (12, 2), (70, 2), (95, 3), (3, 4)):
        pace.take({"percent": percent, "passes": passes})

    assert [report["percent"] for report in reports] == [40, 90, 90, 90, 95, 95]
    assert [report["passes"] for report in reports] == [1, 1, 2, 2, 3, 4]
    assert pace.last["percent"] == 3


def test_the_memory_begins_anew_when_the_disks_are_sent(monkeypatch):
    reports, clock = [], iter(range(0, 100, 3))
    monkeypatch.setattr(sending.time, "monotonic", lambda: next(clock))
    pace = sending._Pace(lambda _stage, **figures: reports.append(figures), Move())

    for percent, memory in ((40, 0), (99, 0), (100, 0), (5, 1 << 20), (50, 1 << 24), (70, 1 << 25)):
        pace.take({"percent": percent, "disk_bytes": 1 << 30, "memory_bytes": memory})

    assert [report["percent"] for report in reports] == [40, 99, 100, 5, 50, 70]


def test_an_end_that_comes_too_late_is_a_move(watch):
    vm = Domain(ends="moved")

    last = watch(vm, stall_s=0)

    assert vm.asked == ["abort"] and last["memory_bytes"] == 4096


@pytest.mark.slow
def test_a_job_that_cannot_be_ended_is_reported_as_going_on(watch, monkeypatch):
    monkeypatch.setattr(sending, "_CANCEL_S", 0.5)
    vm = Domain(ends="refused")

    with pytest.raises(
        MigrationFailed, match="could not end it .*monitor.*virt.migrate_status web1"
    ):
        watch(vm, stall_s=0)


@pytest.mark.parametrize("target", ["hyper2", "[fd00::2]"])
def test_post_copy_that_was_cut_goes_on_at_its_target(target):
    uri = f"qemu+tls://{target}/system"
    job = SimpleNamespace(has_failed_postcopy=lambda: True, error="operation failed", uri=uri)

    message = sending._failed(job, "web")

    assert message.startswith("post-copy of VM 'web' has failed (operation failed): it runs on ")
    assert f"--postcopy-resume web {uri}" in message
