"""Python packages as wheels, made once; and environments, each a layer on the workshop."""

from labkit import layers, roots
from labkit.settings import SALTS

EXTRAS = ("libvirt-python==9.0.0", "pycdlib>=1.14", "pyroute2>=0.7")
TOOLS = (
    "pytest>=8",
    "pytest-xdist>=3.5",
    "pytest-timeout>=2.4",
    "hypothesis",
    "ruff==0.8.*",
    "mypy==2.4.*",
    "types-PyYAML",
    "radon==6.0.*",
    "pip",
    "setuptools<80",
    "wheel",
)
# What makes the pages; pinned, as a warning of a newer release would fail them.
PAGES = ("sphinx==9.0.*", "myst-parser==5.*", "furo==2025.12.19")
# What builds and checks the distribution, and the other product on PyPI that has a module `virt`.
PACKAGING_TOOLS = ("build", "twine", "setuptools>=68,<80", "wheel")
SALTEXT_VIRT = "saltext-virt==0.1.0"
PACKAGING = "/opt/packaging"
FACTORIES = "pytest-salt-factories==1.0.5"
TESTS = "/opt/tests"
DOCS = "/opt/docs"
_WHEELS = """
python3 -m venv /tmp/venv
/tmp/venv/bin/pip install -q wheel 'setuptools<80'
/tmp/venv/bin/pip wheel -q -w /wheels {}
rm -rf /tmp/venv $HOME/.cache
"""
INSTALL = (
    "{python} -m pip install -q --root-user-action=ignore --no-compile --no-index "
    "-f /run/lab/wheels"
)


def _quoted(names):
    return " ".join(f"'{name}'" for name in names)


def wheels(line):
    """Return the folder of the wheels of a line of Salt and of all that tests need."""
    recipe = _WHEELS.format(_quoted([SALTS[line], *EXTRAS, *TOOLS]))
    return (
        layers.add(
            f"wheels-{line}", recipe, roots.workshop(), f"the Python packages of Salt {line}"
        )[0]
        / "wheels"
    )


def add(name, line, requirements, stack):
    """Return a stack with an environment in /opt/NAME more."""
    folder = wheels(line)
    install = INSTALL.format(python=f"/opt/{name}/bin/python3")
    recipe = (
        f"python3 -m venv /opt/{name}; {install} {_quoted(requirements)}; "
        f"/opt/{name}/bin/python3 -m compileall -j 2 -q /opt/{name}/lib || true"
    )
    return layers.add(
        f"python-{name}",
        recipe,
        stack,
        f"the Python environment {name}",
        inputs=[folder.parent.name],
        READ_ONLY=f"{folder}:/run/lab/wheels",
    )


def tests():
    """Return the root that tests run in."""
    return add("tests", "3008", (SALTS["3008"], *EXTRAS, *TOOLS), roots.workshop())


def rival():
    """Return the folder of Salt 3006.25 in an environment of Debian's Python, for any host."""
    requirements = (SALTS["3006"], *EXTRAS)
    return add("rival", "3006", requirements, roots.workshop())[0] / "opt/rival"


def docs():
    """Return the root that the pages are made in; Salt is not in it."""
    recipe = (
        f"python3 -m venv {DOCS}; {DOCS}/bin/python3 -m pip install -q --root-user-action=ignore "
        f"--no-cache-dir {_quoted(PAGES)}"
    )
    what = "the Python environment docs"
    return layers.add("python-docs", recipe, roots.workshop(), what)


def packaging(stack):
    """Return a stack that also has the tools of a release, and saltext-virt's wheel."""
    pip, install = f"{PACKAGING}/bin/python3 -m pip", "install -q --root-user-action=ignore"
    recipe = (
        f"python3 -m venv {PACKAGING}; {pip} {install} --no-cache-dir {_quoted(PACKAGING_TOOLS)}; "
        f"{pip} download -q --no-cache-dir --no-deps -d {PACKAGING}/wheels {SALTEXT_VIRT}"
    )
    return layers.add("python-packaging", recipe, stack, "the Python environment packaging")


def factories(stack):
    """Return a stack whose tests can start masters and minions by pytest-salt-factories."""
    recipe = (
        f"{TESTS}/bin/python3 -m pip install -q --root-user-action=ignore --no-cache-dir "
        f"'{FACTORIES}'"
    )
    return layers.add("python-factories", recipe, stack, "pytest-salt-factories")


def both_salts():
    """Return the root of the tests with an environment of each line of Salt, /opt/salt-LINE."""
    stack = tests()
    for line in SALTS:
        stack = add(f"salt-{line}", line, (SALTS[line], *EXTRAS, "setuptools<80", "wheel"), stack)
    return factories(packaging(stack))
