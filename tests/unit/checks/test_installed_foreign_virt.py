"""Another distribution with a module ``virt`` for Salt is named, and this project is not."""

import re

import pytest
from saltvirt.checks import installed

OWN = ("saltvirt = saltvirt.core.salt.loader:dirs", "saltvirt/__init__.py")


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A Python without distributions: ``install(NAME, entry point, file)`` adds one."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])

    def install(name, entry_point="", file="a.py"):
        folder = tmp_path / f"{name.replace('-', '_')}-0.1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (folder / "RECORD").write_text(f"{file},,\n")
        if entry_point:
            (folder / "entry_points.txt").write_text(f"[salt.loader]\n{entry_point}\n")

    return install


@pytest.mark.parametrize(
    ("name", "entry_point", "file"),
    [
        ("saltext.virt", "saltext.virt = saltext.virt", "saltext/virt/modules/virt.py"),
        ("saltext_virt", "", "virt.py"),
        ("saltext-kvm", "saltext.kvm = saltext.kvm.loader:dirs", "saltext/kvm/modules/virt.py"),
    ],
)
def test_another_distribution_with_a_module_virt_is_named(site, name, entry_point, file):
    site("saltvirt", *OWN)
    site(name, entry_point, file)

    assert installed.find_foreign_virt() == [re.sub("[_.]", "-", name)]


@pytest.mark.parametrize(
    ("name", "entry_point", "file"),
    [
        ("saltvirt", *OWN),
        ("saltext-vault", "saltext.vault = saltext.vault", "saltext/vault/modules/vault.py"),
        ("virt-tools", "", "tools/modules/virt.py"),
    ],
)
def test_no_other_distribution_is_named(site, name, entry_point, file):
    site(name, entry_point, file)

    assert installed.find_foreign_virt() == []
