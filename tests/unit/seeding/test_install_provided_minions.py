"""The minion that the master has fetched for guests, as a host finds and installs it."""

import hashlib
import json
import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import salt.config
import salt.loader
from saltvirt.core.errors import SeedError
from saltvirt.core.salt.context import Context
from saltvirt.seeding import install
from saltvirt.seeding.offline import appliance
from saltvirt.seeding.seedmodel import Inspection
from saltvirt.seeding.shared import minionpackages
from saltvirt.seeding.shared.minionpackages import Package
from saltvirt.vm.create.host import create

HOST_ARCH = platform.machine()
CLOUD_INIT_FACTS = {
    "root": "/dev/sda1",
    "os": "debian 12",
    "arch": HOST_ARCH,
    "has_cloud_init": True,
    "has_systemd": True,
    "mounts": [["/", "/dev/sda1"]],
}
TARBALL = b"\xfd7zXZ\0 a minion"


def package(file, arch=HOST_ARCH, sha256="ab" * 32, family=None):
    """Return an entry of an index."""
    return Package(file=file, arch=arch, version="3006.9", sha256=sha256, family=family)


INDEX = {
    "onedir": [package("x.tar.xz", "x86_64"), package("a.tar.xz", "aarch64")],
    "deb": [package("common.deb", "x86_64"), package("minion.deb", "x86_64")],
    "rpm": [package("minion.rpm", "x86_64")],
}


@pytest.mark.parametrize(
    ("system", "arch", "files"),
    [
        ("debian 12", "x86_64", ["common.deb", "minion.deb"]),
        ("ubuntu 24", "x86_64", ["common.deb", "minion.deb"]),
        ("rocky 9", "x86_64", ["minion.rpm"]),
        ("opensuse 15", "x86_64", ["minion.rpm"]),
        ("archlinux 0", "x86_64", ["x.tar.xz"]),
        ("some system", "x86_64", ["x.tar.xz"]),
        ("debian 12", "aarch64", ["a.tar.xz"]),
        ("debian 12", "s390x", []),
        ("debian 12", None, []),
    ],
)
def test_the_packages_for_the_guest_are_chosen(system, arch, files):
    packages = minionpackages.choose_packages(INDEX, system, arch, runs_here=True, has_systemd=True)

    assert [package_.file for package_ in packages] == files


def test_another_processors_guest_gets_the_tarball_and_one_without_systemd_none():
    def files(**options):
        guest_facts = {"runs_here": True, "has_systemd": True, **options}
        packages = minionpackages.choose_packages(INDEX, "debian 12", "x86_64", **guest_facts)
        return [chosen_package.file for chosen_package in packages]

    assert files(runs_here=False) == ["x.tar.xz"]
    assert files(has_systemd=False) == ["common.deb", "minion.deb"]
    assert files(runs_here=False, has_systemd=False) == []


def test_an_index_is_read_as_it_was_written():
    assert minionpackages.read_index(minionpackages.format_index({**INDEX, "rpm": []})) == {
        "onedir": INDEX["onedir"],
        "deb": INDEX["deb"],
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"onedir": [{"file": "x"}]}',
        json.dumps({"deb": [{"file": "../x", "arch": "a", "version": "3", "sha256": "ab" * 32}]}),
        json.dumps({"deb": [{"file": "x", "arch": "a", "version": "3", "sha256": "ab"}]}),
    ],
)
def test_an_index_that_cannot_be_understood_is_refused(text):
    with pytest.raises(ValueError):
        minionpackages.read_index(text)


@pytest.fixture
def minion_folder(tmp_path):
    """The folder where the master puts files for guests; this minion serves itself."""
    folder = tmp_path / "srv/salt-virt/minion"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def context(hypervisor, minion_folder, tmp_path):
    """A host with Salt's own functions."""
    opts = {
        **salt.config.minion_config(None),
        "file_client": "local",
        "file_roots": {"base": [str(minion_folder.parents[1])]},
        "cachedir": str(tmp_path / "cache"),
        "root_dir": str(tmp_path),
        "pki_dir": str(tmp_path / "pki"),
        "extension_modules": str(tmp_path / "extmods"),
        "id": "hyper1",
        "master": "10.0.0.1",
        "hash_type": "sha256",
        "grains": {"os": "Debian", "os_family": "Debian", "kernel": "Linux"},
    }
    functions = salt.loader.minion_mods(opts)
    return replace(hypervisor.context, opts=opts, functions=functions)


def provide(minion_folder, digest=None):
    """Put a tarball on the file server, as the master does."""
    (minion_folder / "salt.tar.xz").write_bytes(TARBALL)
    sha256 = digest or hashlib.sha256(TARBALL).hexdigest()
    text = minionpackages.format_index({"onedir": [package("salt.tar.xz", sha256=sha256)]})
    (minion_folder / "index.json").write_text(text)


def test_without_an_index_there_is_nothing(context):
    assert install.read_index(context, "base") == {}


def test_an_index_is_read_off_the_file_server(context, minion_folder):
    provide(minion_folder)

    (package_,) = install.find_suitable(context, Inspection(**CLOUD_INIT_FACTS), "base")

    assert package_.url == "salt://salt-virt/minion/salt.tar.xz"
    assert (
        install.find_suitable(context, Inspection(**CLOUD_INIT_FACTS, has_minion=True), "base")
        == ()
    )
    assert install.find_suitable(context, Inspection(root=None), "base") == ()


def test_an_environment_of_images_has_its_minions_in_base(context, minion_folder, jobs, hypervisor):
    provide(minion_folder)
    image = minion_folder.parents[2] / "prod"
    image.mkdir()
    context.opts["file_roots"]["prod"] = [str(image)]

    (package_,) = install.find_suitable(context, Inspection(**CLOUD_INIT_FACTS), "prod")
    assert (package_.url, package_.saltenv) == ("salt://salt-virt/minion/salt.tar.xz", "base")
    prepared = install.prepare(context, None, HOST_ARCH, "prod", (package_,))
    assert (
        Path(prepared.files[0][0]).read_bytes() == TARBALL and prepared.files[0][1] == "salt.tar.xz"
    )


def test_an_index_that_is_damaged_is_one_line_with_the_command(context, minion_folder):
    (minion_folder / "index.json").write_text("{ }}")

    with pytest.raises(SeedError, match="index.json cannot be read: .*virt_image.minion_packages"):
        install.read_index(context, "base")


@pytest.fixture
def prod(context, minion_folder):
    """The folder of minions of an environment beside base; base has minions too."""
    provide(minion_folder)
    root = minion_folder.parents[2] / "prod"
    folder = root / minionpackages.FOLDER
    folder.mkdir(parents=True)
    context.opts["file_roots"]["prod"] = [str(root)]
    return folder


ONLY_OWN_INDEX = (
    "; as saltenv prod has an index of its own, that of base is not used instead: have it written "
    "anew on the master (salt-run virt_image.minion_packages saltenv=prod), or take it away "
    "(salt-run virt_image.minion_packages remove=True saltenv=prod)"
)


def test_base_is_not_used_where_an_environments_index_is_damaged(context, prod):
    (prod / "index.json").write_text("{ }}")

    with pytest.raises(
        SeedError, match=f"index.json cannot be read: .*{re.escape(ONLY_OWN_INDEX)}$"
    ):
        install.find_suitable(context, Inspection(**CLOUD_INIT_FACTS), "prod")


@pytest.mark.parametrize("fault", ["missing", "another"])
def test_base_is_not_used_where_an_environment_lacks_a_file_of_its_index(context, prod, fault):
    provide(prod, digest="0a" * 32)
    if fault == "missing":
        (prod / "salt.tar.xz").unlink()
    packages = install.find_suitable(context, Inspection(**CLOUD_INIT_FACTS), "prod")

    with pytest.raises(SeedError, match=f"^salt://.*{re.escape(ONLY_OWN_INDEX)}$") as excinfo:
        install.prepare(context, None, HOST_ARCH, "prod", packages)
    messages = {
        "missing": "cannot be fetched, though the index",
        "another": "its SHA-256 is another",
    }
    assert messages[fault] in str(excinfo.value) and "\n" not in str(excinfo.value)


def test_base_is_used_where_an_environments_index_has_nothing_for_a_guest(context, prod):
    (prod / "index.json").write_text(minionpackages.format_index({}))

    (package_,) = install.find_suitable(context, Inspection(**CLOUD_INIT_FACTS), "prod")

    assert package_.saltenv == "base"


def test_a_file_with_another_digest_than_the_indexs_is_refused(context, minion_folder):
    provide(minion_folder)
    right = hashlib.sha256(TARBALL).hexdigest()
    good, bad = package("salt.tar.xz", sha256=right), package("salt.tar.xz")

    prepared = install.prepare(context, None, HOST_ARCH, "base", (good,))

    assert (
        Path(prepared.files[0][0]).read_bytes() == TARBALL and prepared.files[0][1] == "salt.tar.xz"
    )
    with pytest.raises(SeedError, match="not the file that was fetched for guests"):
        install.prepare(context, None, HOST_ARCH, "base", (bad,))


class Jobs(list):
    """The jobs of the appliance; ``lacks`` is what it reports of an image beside the usual."""

    lacks: ClassVar[dict] = {}


@pytest.fixture
def jobs(monkeypatch):
    """The recorded jobs of the appliance; tests/cloud/test_stock_image.py runs a real one."""
    recorded_jobs = Jobs()

    def run(job, **_options):
        recorded_jobs.append(job)
        return {**CLOUD_INIT_FACTS, **recorded_jobs.lacks, "has_minion": job["action"] != "look"}

    monkeypatch.setattr(appliance, "why_missing", lambda _python: None)
    monkeypatch.setattr(appliance, "run", run)
    return recorded_jobs


def deploy(context: Context, hypervisor, **options):
    """Build a VM of an image that has cloud-init and no minion."""
    build_options = {"seed_method": None, **options}
    return create.create(context, hypervisor.deployment("web1", **build_options))


def test_a_stock_image_is_refused_before_a_vm_exists(context, hypervisor, jobs):
    with pytest.raises(SeedError) as error:
        deploy(context, hypervisor)

    for words in ("debian 12 has none", "`salt-run virt_image.minion_packages`", "seed=False"):
        assert words in str(error.value)
    assert [job["action"] for job in jobs] == ["look"]
    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == ([], [], [])


def test_a_stock_image_gets_the_fetched_minion_and_cloud_inits_seed(
    context, hypervisor, jobs, minion_folder
):
    provide(minion_folder)
    options = {"user_data": {"packages": ["vim"]}}

    assert deploy(context, hypervisor, **options) is True

    look_job, install_job = jobs
    assert (look_job["action"], install_job["action"]) == ("look", "install")
    ((path, name),) = install_job["install"]["files"]
    assert (Path(path).read_bytes(), name, install_job["network"]) == (
        TARBALL,
        "salt.tar.xz",
        False,
    )
    assert install_job["path"].endswith("web1_system.qcow2") and "files" not in install_job
    assert install_job["found"]["mounts"] == CLOUD_INIT_FACTS["mounts"]
    # It has its minion already: cloud-init starts it and installs none.
    seed = (Path(hypervisor.settings.images) / "web1_seed.iso.qcow2").read_bytes()
    assert b"systemctl restart --no-block salt-minion" in seed and b"apt-get" not in seed


def test_the_answer_to_an_order_warns_of_what_its_image_does_not_serve(
    context, hypervisor, jobs, minion_folder
):
    provide(minion_folder)
    context = replace(context, is_ordered=True)
    jobs.lacks = {"has_ssh_server": False}
    keys = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPt3s3pgYnnXQQxiL6PhC6JlRVFrOXdeFEa3fMQvKD6y anna"

    answer = deploy(context, hypervisor, ssh_authorized_keys=keys)

    (line,) = answer["warnings"]
    assert "has no SSH server" in line


def test_a_fetched_minion_that_was_changed_ends_the_build_with_nothing_left(
    context, hypervisor, jobs, minion_folder
):
    provide(minion_folder, digest="cd" * 32)

    with pytest.raises(SeedError, match="not the file that was fetched for guests"):
        deploy(context, hypervisor)

    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == ([], [], [])
