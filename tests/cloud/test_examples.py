"""Every CLI example of every docstring runs and succeeds."""

import ast
import shlex

import pytest
from cloudkit import TINY
from labkit.settings import CHECKOUT

XML = """<domain type='qemu'><name>{}</name><memory>65536</memory>
<os><type>hvm</type></os></domain>"""
# The examples that make their VM themselves, or need none.
WITHOUT_VM = {"init", "purge"}
PKI = {"renew", "revoke", "rotate_ca", "export", "import"}


def examples():
    """Yield the lines of each function's example."""
    for folder in ("_modules", "_runners"):
        for path in sorted((CHECKOUT / folder).glob("virt*.py")):
            for function in ast.parse(path.read_text()).body:
                if isinstance(function, ast.FunctionDef) and not function.name.startswith("_"):
                    block = ast.get_docstring(function).split("code-block:: bash", 1)[1]
                    lines = [line.strip() for line in block.splitlines() if "salt" in line]
                    name = function.name.rstrip("_")
                    yield pytest.param(name, lines, id=f"{folder}.{name}")


def prepare_pki(cloud, name):
    """Give hyper1 certificates; for an import, move the CA of the lab away behind its backup."""
    cloud.sh("master", "rm -f /srv/ca.backup; echo 'a long passphrase' > /srv/passphrase")
    assert cloud.run("virt_pki.renew", "hyper1").code == 0
    if name == "import":
        assert cloud.run("virt_pki.export", "/srv/ca.backup", "/srv/passphrase").code == 0
        (cloud.lab.master_conf / "pki/master/libvirt").rename(cloud.folder("master") / "old-ca")


@pytest.fixture
def ground(cloud, request):
    """A running VM called centos1 on hyper1, and the files that examples name."""
    cloud.purge_all()
    for name in ("d8", "d9"):
        (cloud.folder("hyper1") / f"srv/{name}.xml").write_text(XML.format(name))
    if request.param in PKI:
        prepare_pki(cloud, request.param)
    if request.param not in WITHOUT_VM or request.param == "purge":
        cloud.local("hyper1", "virt.init", "centos1", "1", "96", TINY, "seed=False")
    if request.param == "resume":
        cloud.local("hyper1", "virt.pause", "centos1")
    yield cloud
    cloud.purge_all()
    for name in ("d8", "d9"):
        (cloud.folder("hyper1") / f"srv/{name}.xml").unlink()


@pytest.mark.parametrize(("ground", "lines"), list(examples()), indirect=["ground"])
def test_an_example_does_what_it_says(ground, lines):
    for line in lines:
        program, *words = shlex.split(line)
        done = ground.command(program, *words)
        assert done.code == 0, f"{line}: {done.out}{done.err}"
        assert "Traceback" not in done.out + done.err
