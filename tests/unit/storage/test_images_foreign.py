"""What other formats' headers say of a disk's size is what QEMU makes of it."""

import json
import subprocess

import pytest
from saltvirt.storage.images import headers

SIZE = 24 * 2**20


@pytest.mark.parametrize(
    ("fmt", "options"),
    [
        ("vmdk", []),
        ("vmdk", ["-o", "subformat=streamOptimized"]),
        ("vdi", []),
        ("vpc", ["-o", "force_size=on"]),
        ("vpc", ["-o", "force_size=on,subformat=fixed"]),
    ],
)
def test_a_size_is_the_one_that_qemu_says(tmp_path, fmt, options):
    path = tmp_path / "disk"
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, *options, path, str(SIZE)], check=True)
    argv = ["qemu-img", "info", "--output=json", "-f", fmt, path]
    said = json.loads(subprocess.run(argv, check=True, capture_output=True).stdout)

    found = headers.foreign_sizes(path, fmt)

    assert found.virtual == said["virtual-size"] == SIZE
    assert found.cluster in (said.get("cluster-size"), None)


@pytest.mark.parametrize("fmt", ["vmdk", "vdi", "vpc", "vhdx", "qed"])
@pytest.mark.parametrize("content", [b"", b"KDMV", bytes(4096), b"\xff" * 4096])
def test_what_is_not_of_its_format_has_no_size(tmp_path, fmt, content):
    path = tmp_path / "disk"
    path.write_bytes(content)

    assert headers.foreign_sizes(path, fmt) is None


def test_a_size_that_no_file_can_have_is_none(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(b"KDMV" + b"\xff" * 4096)

    assert headers.foreign_sizes(path, "vmdk") is None
