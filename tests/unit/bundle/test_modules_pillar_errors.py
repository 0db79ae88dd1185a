"""While a host's pillar has errors nothing changes there, and all protections stay."""

import inspect
from dataclasses import replace

import asloaded
import pytest
import salt.config
import salt.pillar
from saltvirt.core.errors import OptionsMissing, StorageError, VirtError
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import trash
from saltvirt.vm.purge.host import purge

ROOT = asloaded.ROOT
PILLAR = "virt:\n  trash_days: 7\n  images: {images}\n  shared_paths: [{images}]\n"
UUID = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"
ERRORS = {"_errors": ["Rendering SLS 'hypervisor' failed, render error: x\nand more"]}
REFUSED = (
    "nothing is changed on this host while its pillar has errors (Rendering SLS 'hypervisor' "
    "failed, render error: x and more); fix the pillar, then run: salt hyper1 "
    "saltutil.refresh_pillar"
)


@pytest.fixture
def compile_text(tmp_path):
    """Return a function that has Salt compile the pillar of a file."""

    def compile_pillar(text, **more):
        root = tmp_path / "pillar"
        root.mkdir(exist_ok=True)
        (root / "top.sls").write_text("base:\n  '*':\n    - hypervisor\n")
        (root / "hypervisor.sls").write_text(text)
        opts = salt.config.DEFAULT_MINION_OPTS.copy()
        opts.update(
            id="hyper1",
            file_client="local",
            pillar_roots={"base": [str(root)]},
            cachedir=str(tmp_path / "cache"),
            extension_modules=str(tmp_path / "ext"),
            pillarenv=None,
            saltenv="base",
            **more,
        )
        return salt.pillar.Pillar(opts, {}, "hyper1", "base").compile_pillar()

    return compile_pillar


@pytest.fixture
def minion(tmp_path):
    """Options of a minion."""
    return {"id": "hyper1", "root_dir": str(tmp_path / "root")}


@pytest.mark.parametrize(
    "broken_lines",
    ["  {{% if %}}\n", "  - x: [\n", "{{{{ salt['no.such_function']() }}}}\n"],
)
def test_the_trash_stays_on_after_a_bad_edit_of_the_pillar(
    hypervisor, compile_text, minion, broken_lines
):
    images = hypervisor.settings.images
    good_text = PILLAR.format(images=images)
    settings_before = config.host_settings(minion, compile_text(good_text), {})
    pillar = compile_text(good_text + broken_lines.format())
    assert "virt" not in pillar and pillar["_errors"]

    settings_after = config.host_settings(minion, pillar, {})

    assert (settings_after.trash_days, settings_after.shared_paths) == (7, [images])
    assert settings_after == settings_before
    with hypervisor.libvirt() as conn:
        hypervisor.init("web1", start=False)
        settings = hypervisor.settings  # the test's libvirt and folders
        purge.purge(conn, replace(settings, trash_days=settings_after.trash_days), "web1")
    assert trash.list_entries(settings)


def test_a_kept_definition_is_not_purged_with_the_disk_of_the_vm_that_runs_elsewhere(
    hypervisor, compile_text, minion
):
    """The VM runs on hyper2; this host has only kept its definition, and sees the shared disk."""
    shared_folder = hypervisor.root / "shared"
    shared_folder.mkdir()
    disk = shared_folder / "web1.raw"
    disk.write_bytes(b"of the VM that runs on hyper2" * 1000)
    text = PILLAR.format(images=shared_folder)
    config.host_settings(minion, compile_text(text), {})
    settings_after = config.host_settings(minion, compile_text(text + "  {% if %}\n"), {})
    with hypervisor.libvirt() as conn:
        lifecycle.define(
            conn,
            f"<domain type='test'><name>web1</name><uuid>{UUID}</uuid><memory>65536</memory>"
            "<os><type>hvm</type></os><devices><disk type='file' device='disk'>"
            f"<driver name='qemu' type='raw'/><source file='{disk}'/>"
            "<target dev='vda' bus='virtio'/></disk></devices></domain>",
        )
        lifecycle.mark_moved(conn, "web1", "hyper2")
        settings = replace(hypervisor.settings, shared_paths=settings_after.shared_paths)
        with pytest.raises(StorageError, match="nothing is removed"):
            purge.purge(conn, settings, "web1")

    assert disk.exists()


def test_an_external_pillar_that_fails_is_an_error_too(compile_text, minion):
    compiled_pillar = compile_text("{}", ext_pillar=[{"cmd_yaml": 1, "more": 2}])

    assert config.effective_sources(minion, compiled_pillar, {}).refusal


MODULES = sorted((ROOT / "_modules").glob("[a-z]*.py"))
STATES = sorted((ROOT / "_states").glob("[a-z]*.py"))


def public(module):
    """Return the functions of a module that users call."""
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and name[0] != "_"
        and function.__module__ == module.__name__
    }


def module_with_broken_pillar(path, **opts):
    """Return a module of a host that has errors in its pillar."""
    module = asloaded.module(f"{path.parent.name}/{path.name}", id="hyper1", **opts)
    # With a minion's folder the host remembers a good pillar.
    config.host_settings(module.__opts__, {"virt": {"trash_days": 7}}, {})
    module.__pillar__ = dict(ERRORS)
    return module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_no_function_changes_anything_while_the_pillar_has_errors(path):
    module = module_with_broken_pillar(path)
    guarded = {
        name: function
        for name, function in public(module).items()
        if hasattr(function, "__wrapped__")
    }

    for function in guarded.values():
        with pytest.raises(OptionsMissing) as refused:
            function()
        assert str(refused.value) == REFUSED


@pytest.mark.parametrize("path", STATES, ids=lambda path: path.stem)
def test_no_state_changes_anything_while_the_pillar_has_errors(path):
    module = module_with_broken_pillar(path)

    for state in public(module).values():
        answer = state("web1")
        assert answer == {"name": "web1", "changes": {}, "result": False, "comment": REFUSED}


@pytest.fixture
def open_driver(fresh_driver):
    """The test driver of libvirt, which keeps its changes while this connection is open."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        yield conn


def test_a_state_with_test_looks_and_warns(open_driver):
    module = module_with_broken_pillar(ROOT / "_states/virt_power.py", test=True)

    answer = module.powered_off("test")

    assert (answer["result"], answer["warnings"]) == (None, [REFUSED])
    assert answer["changes"] == {"unpowered": [{"domain": "test", "stop": True}]}
    assert open_driver.lookupByName("test").isActive()


def test_reading_functions_work_while_the_pillar_has_errors(open_driver):
    assert module_with_broken_pillar(ROOT / "_modules/virt_query.py").list_domains() == ["test"]
    networks = module_with_broken_pillar(ROOT / "_modules/virt_networks.py")
    options = {"name": "default", "bridge": "virbr0", "forward": "nat"}
    options["ipv4_config"] = {"cidr": "192.168.122.0/24"}
    assert networks.network_update(**options, test=True)
    for test in (False, "perhaps"):
        with pytest.raises(OptionsMissing):
            networks.network_update(**options, test=test)


def test_a_target_says_that_it_takes_no_vm():
    moves = module_with_broken_pillar(ROOT / "_modules/virt_answers_moves.py")

    assert moves.migrate_check({}) == {}
    lists = ("disks", "affinity", "anti_affinity", "bridges", "networks", "links", "obstacles")
    texts = {"state": "running", "domain_type": "kvm", "arch": "x86_64"}
    description = {
        **texts,
        "vcpus": 1,
        "memory_mib": 1,
        "stay": False,
        **{name: [] for name in lists},
    }
    vms = {name: {**description, "name": name, "uuid": name} for name in ("web1", "web2")}
    assert moves.migrate_check(vms["web1"]) == [REFUSED]
    assert moves.migrate_check(vms) == {"web1": [REFUSED], "web2": [REFUSED]}


STEPS = {
    "virt_answers_moves": ["migrate_step", "migrate_push"],
    "virt_answers": ["refuse_order"],
    "virt_migrate": ["migrate_cancel", "migrate_start_postcopy", "evacuated"],
    "guestfs": ["umount"],
    "qemu_nbd": ["clear"],
}


@pytest.mark.parametrize(("name", "functions"), STEPS.items())
def test_steps_of_an_open_record_run_where_the_options_are_remembered(name, functions, tmp_path):
    path = ROOT / f"_modules/{name}.py"
    module = module_with_broken_pillar(path, root_dir=str(tmp_path))

    for function in functions:
        # The TypeError shows that the pillar's errors did not refuse the call.
        with pytest.raises(TypeError):
            getattr(module, function)(no_such_argument=1)
        # Without the options a shared disk would be removed with the VM that has moved.
        with pytest.raises(OptionsMissing):
            getattr(module_with_broken_pillar(path), function)(no_such_argument=1)


@pytest.mark.parametrize(
    ("name", "function", "begins", "finishes"),
    [
        ("virt_migrate", "migrate", {"vm_": "a", "target": "b"}, {"token": "t", "present": []}),
        (
            "virt_answers_moves",
            "migrate_prepare",
            {"about": {}, "token": "t"},
            {"images_sent": True},
        ),
        ("virt_key", "authorized", {"name": "web1", "token": "x"}, {"token": None}),
        ("virt_image", "image_prune", {"step": "begin"}, {"step": "end"}),
        ("virt_image", "image_prune", {}, {"dry_run": True}),
        ("virt", "init", {"name": "web1"}, {"dry_run": True}),
        ("virt_clone", "clone", {"source": "a", "name": "b"}, {"dry_run": True}),
        ("virt_change", "update", {"name": "web1"}, {"test": True}),
        ("virt_device", "eject", {"name": "web1"}, {"test": True}),
        ("virt_device", "disk_remove", {"name": "web1", "disk": "vda"}, {"dry_run": True}),
        ("virt_pool", "pool_update", {"name": "p", "ptype": "dir"}, {"test": True}),
    ],
)
def test_a_later_step_of_an_open_record_is_not_refused(
    name, function, begins, finishes, tmp_path, open_driver
):
    folders = {"images": str(tmp_path / "images"), "state_dir": str(tmp_path / "state")}
    virt = {"connection": {"uri": "test:///default"}, **folders}
    opts = {"virt": virt, "root_dir": str(tmp_path)}
    step_function = getattr(
        module_with_broken_pillar(ROOT / f"_modules/{name}.py", **opts), function
    )

    with pytest.raises(OptionsMissing):
        step_function(**begins)
    try:
        step_function(**{**begins, **finishes})
    except OptionsMissing:
        pytest.fail("it was refused")
    except (VirtError, KeyError):
        pass  # for another reason than the pillar's errors


def test_a_runner_may_try_another_host():
    module = module_with_broken_pillar(ROOT / "_modules/virt.py")
    module.__context__ = {}

    answer = module.init("web1", 1, 512, report={"others": []})

    assert answer["kind"] == "ReservationRefused"
    assert answer["error"] == f"this host cannot take 'web1': {REFUSED}"
    assert module.__context__["retcode"] == 1


def test_an_audit_names_the_errors(open_driver, tmp_path):
    module = module_with_broken_pillar(ROOT / "_modules/virt_query.py", pki_dir=str(tmp_path))

    assert module.audit()["wrong_options"] == [REFUSED]
