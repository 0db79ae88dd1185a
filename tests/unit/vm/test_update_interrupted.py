"""An update that ends once libvirt has defined the VM leaves no disk of it without its file."""

import inspect
from pathlib import Path

import asloaded
import pytest
from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.domains import lifecycle
from saltvirt.vm.update.host import apply, request

UPDATE = asloaded.module("_modules/virt_change.py").update
GIVEN = {
    name: one.default
    for name, one in inspect.signature(UPDATE).parameters.items()
    if one.default is not inspect.Parameter.empty
}
DISKS = [{"name": "system"}, {"name": "data", "size": 8}, {"name": "more", "size": 8}]
MORE = "web1_more.qcow2"


def lost(*_args):
    """Fail as what libvirt does not answer any more."""
    raise LibvirtRefused("the connection is lost")


def ended(*_args):
    """End as a job does by a signal."""
    raise SystemExit(143)


@pytest.fixture
def updated(hypervisor):
    """Return a function that gives web1 one disk more, and one that returns its definition."""
    with hypervisor.libvirt() as conn:
        hypervisor.init(start=False)

        def call():
            asked = request.from_call(hypervisor.settings, "web1", {**GIVEN, "disks": DISKS})
            return apply.update(hypervisor.context, asked)

        yield call, lambda: lifecycle.inactive_xml(conn, "web1")


def test_a_definition_that_is_there_is_taken_back_before_its_disk(hypervisor, updated, monkeypatch):
    update, definition = updated
    before = definition()
    with monkeypatch.context() as cut_off:
        cut_off.setattr(apply.existing, "adopt", ended)
        with pytest.raises(SystemExit):
            update()

    assert definition() == before
    assert MORE not in hypervisor.files()
    update()
    assert MORE in definition() and MORE in hypervisor.files()


def test_a_disk_stays_that_a_definition_names_which_cannot_be_taken_back(
    hypervisor, updated, monkeypatch
):
    update, definition = updated
    define = lifecycle.define

    def unheard(*args):
        define(*args)
        monkeypatch.setattr(lifecycle, "define", lost)
        lost()

    monkeypatch.setattr(lifecycle, "define", unheard)
    with pytest.raises(LibvirtRefused, match="is lost"):
        update()

    assert MORE in definition() and MORE in hypervisor.files()


def test_a_new_disk_is_on_the_disk_before_the_vm_has_it(hypervisor, updated, synced, monkeypatch):
    update, _definition = updated
    define, before = lifecycle.define, []
    monkeypatch.setattr(
        lifecycle, "define", lambda *args: (before.extend(synced), define(*args))[1]
    )

    update()

    folder = Path(hypervisor.settings.images)
    at = [name for name, _held in before].index(MORE)
    assert before[at][1] == (folder / MORE).read_bytes()
    assert MORE in dict(before[at:])[folder.name]
