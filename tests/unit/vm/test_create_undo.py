"""The undo of a build: nobody starts its VM meanwhile, and its files go after its definition."""

import os
import signal
import threading
import uuid
from dataclasses import replace

import pytest
from saltvirt.core.errors import BadArgument, NotTakenBack, SeedError, VirtError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import definitionfiles, door
from saltvirt.vm.create.host import apply, create
from saltvirt.vm.power.host import startlock
from saltvirt.vm.recovery.host import unfinished
from saltvirt.xml.domain import osboot

ALL = ["web1_data.qcow2", "web1_seed.iso.qcow2", "web1_system.qcow2"]


def fail(*_args, **_given):
    """Fail as a step does."""
    raise SeedError("this step failed")


def kill(*_args, **_given):
    """Die as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def left(hypervisor):
    """Return the files, domains and records that are left."""
    return hypervisor.files(), hypervisor.domains(), hypervisor.open_records()


@pytest.fixture(params=["start", "define"])
def failing(hypervisor, monkeypatch, request):
    """A host whose builds fail once their VM is defined: at its start, or before it is complete."""
    define = apply._define

    def define_and_fail(*args):
        define(*args)
        fail()

    if request.param == "start":
        monkeypatch.setattr(lifecycle, "start", fail)
    else:
        monkeypatch.setattr(apply, "_define", define_and_fail)
    return hypervisor


@pytest.mark.slow
def test_nobody_starts_a_vm_between_its_stop_and_the_end_of_its_definition(failing, monkeypatch):
    said, threads = [], []
    undefine, remove_log = lifecycle.undefine, unfinished.remove_log

    def start():
        try:
            with startlock.allow_start(conn, failing.settings, "web1"):
                conn.lookupByName("web1").create()
        except VirtError as error:
            said.append(error)

    def starts_meanwhile(*args, **given):
        threads.append(threading.Thread(target=start))
        threads[0].start()
        threads[0].join(0.5)
        assert threads[0].is_alive() and not said
        undefine(*args, **given)

    def wait(name):
        threads[0].join(10)
        remove_log(name)

    monkeypatch.setattr(lifecycle, "undefine", starts_meanwhile)
    monkeypatch.setattr(unfinished, "remove_log", wait)
    with failing.libvirt() as conn:
        with pytest.raises(SeedError, match="this step failed"):
            failing.init()
        assert not lifecycle.is_defined(conn, "web1")

    (error,) = said
    assert isinstance(error, startlock.BeingUndone), error
    assert left(failing) == ([], [], [])


def test_the_files_stay_until_the_end_of_the_definition_is_on_the_disk(failing, monkeypatch):
    settle = definitionfiles.settle_definitions
    calls = []

    def ill():
        calls.append(1)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        settle()

    with monkeypatch.context() as broken, failing.libvirt() as conn:
        broken.setattr(definitionfiles, "settle_definitions", ill)
        with pytest.raises(NotTakenBack, match="step failed; and not everything .* can be removed"):
            failing.init()
        # A power cut would bring it back now, with all that it needs.
        assert left(failing) == (ALL, [], [("build", "web1", "undoing")])
        unfinished.settle(conn, failing.settings)
        assert failing.files() == ALL

    with failing.libvirt() as conn:
        unfinished.settle(conn, failing.settings)
    assert left(failing) == ([], [], [])


def test_an_undo_that_is_killed_before_the_vm_is_undefined_leaves_it_whole(failing, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(lifecycle, "undefine", kill)
        failing.dies(failing.init)
    assert left(failing) == (ALL, ["web1"], [("build", "web1", "undoing")])

    with failing.libvirt() as conn:
        with startlock.allow_start(conn, failing.settings, "web1"):
            pass
        unfinished.settle(conn, failing.settings)

    assert left(failing) == (ALL, ["web1"], [])


def test_an_undo_that_is_killed_later_is_finished_before_that_name_is_started(failing, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(door, "remove", kill)
        failing.dies(failing.init)
    assert failing.domains() == [] and failing.files() != []

    xml = "<domain type='test'><name>web1</name><uuid>{}</uuid><memory>1024</memory></domain>"
    words = "virt.init of VM 'web1' .* being undone; .* finish it with virt.purge web1"
    with failing.libvirt() as conn:
        with (
            pytest.raises(startlock.BeingUndone, match=words),
            startlock.allow_creation(conn, failing.settings, xml.format("u2")),
        ):
            pytest.fail("it was started")
        unfinished.settle(conn, failing.settings)
        with startlock.allow_creation(conn, failing.settings, xml.format("u2")):
            pass

    assert left(failing) == ([], [], [])


def test_a_vm_that_was_renamed_meanwhile_stays_whole(hypervisor, monkeypatch):
    def rename_and_fail(conn, name):
        renamed = lifecycle.migratable_xml(conn, name).replace("<name>web1<", "<name>web2<")
        lifecycle.undefine(conn, name)
        lifecycle.define(conn, renamed)
        fail()

    monkeypatch.setattr(lifecycle, "start", rename_and_fail)
    with hypervisor.libvirt() as conn:
        with pytest.raises(NotTakenBack):
            hypervisor.init()
        unfinished.settle(conn, hypervisor.settings)

    assert left(hypervisor) == (ALL, ["web2"], [])


def test_the_undo_of_what_was_never_defined_needs_no_definition_gone(hypervisor, monkeypatch):
    monkeypatch.setattr(apply, "_seed", fail)
    with hypervisor.libvirt(), pytest.raises(SeedError, match="this step failed"):
        hypervisor.init()

    assert left(hypervisor) == ([], [], [])


@pytest.mark.parametrize("asked", ["0B5CC81E-6D4A-44C6-9A4F-0B1B7C9B2A01", None])
def test_a_vm_has_the_uuid_that_the_master_has_chosen(hypervisor, asked):
    with hypervisor.libvirt() as conn:
        told = hypervisor.context.reporting("web1", "t", {"uuid": asked})
        create.create(replace(told, progress=hypervisor.context.progress), hypervisor.deployment())

        found = lifecycle.uuid(conn, "web1")

    assert found == asked.lower() if asked else uuid.UUID(found).version == 4


def test_what_is_no_uuid_is_refused_before_anything_is_made(hypervisor):
    with pytest.raises(BadArgument, match="report: 'web1' is not a UUID"):
        hypervisor.context.reporting("web1", "t", {"uuid": "web1"})


@pytest.mark.parametrize("was_there", [True, False])
def test_the_undo_leaves_the_firmwares_variables_that_an_earlier_vm_left(
    hypervisor, monkeypatch, was_there
):
    folder, said = hypervisor.root, []
    monkeypatch.setattr(osboot, "_VARIABLES", f"{folder}/{{}}_VARS.fd")
    variables, undefine = folder / "web1_VARS.fd", lifecycle.undefine
    if was_there:
        variables.write_text("an earlier VM's")

    def make_and_fail(_conn, _name):
        variables.touch()
        fail()

    def undefining(conn, name, *, keep_nvram=False):
        said.append(keep_nvram)
        undefine(conn, name)

    monkeypatch.setattr(lifecycle, "start", make_and_fail)
    monkeypatch.setattr(lifecycle, "undefine", undefining)
    with hypervisor.libvirt(), pytest.raises(SeedError, match="this step failed"):
        hypervisor.init(boot={"efi": True})

    assert said == [was_there]


def test_the_undo_of_a_vm_that_was_never_started_leaves_its_firmwares_variables(
    hypervisor, monkeypatch
):
    said = []
    monkeypatch.setattr(lifecycle, "undefine", lambda *_args, **given: said.append(given))
    define = apply._define

    def define_and_fail(*args):
        define(*args)
        fail()

    monkeypatch.setattr(apply, "_define", define_and_fail)
    with hypervisor.libvirt(), pytest.raises(NotTakenBack):
        hypervisor.init(boot={"efi": True})

    assert said[0] == {"keep_nvram": True}
