"""Who may import whom, read off the syntax trees: docs/development.md has the picture."""

import ast
import functools
import sys
from pathlib import Path

import pytest
import trees

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "_utils" / "saltvirt"
SALT_MODULES = [
    p
    for kind in (
        "_modules",
        "_runners",
        "_states",
        "_pillar",
        "_output",
        "_grains",
        "_engines",
        "_clouds",
    )
    for p in sorted((ROOT / kind).glob("*.py"))
]
PARTS = sorted(LIBRARY.rglob("*.py"))
BASE = {
    "access",
    "arguments",
    "buildparts",
    "config",
    "connection",
    "defaults3006",
    "errors",
    "files",
    "garbage",
    "guestanswers",
    "keypair",
    "later",
    "optional",
    "optionmemory",
    "optionsections",
    "optionstrength",
    "saltfiles",
    "locks",
    "mountinfo",
    "model",
    "movefacts",
    "networkspec",
    "nics",
    "optionkinds",
    "optionsources",
    "content",
    "minionpackages",
    "parts",
    "profiles",
    "protocol",
    "recordfacts",
    "records",
    "room",
    "sealed",
    "settling",
    "shownprofiles",
    "signed",
    "lookonly",
    "spec",
    "clonespec",
    "movespec",
    "sshkeys",
    "stocks",
    "terminal",
    "undo",
    "units",
    "valuekinds",
    "vmfilter",
    "web",
    "wire",
    "xml",
}
MAY = {
    "ops": BASE | {"image", "kvm", "net", "ops", "pki", "placement", "seed", "storage"},
    "fleet": BASE | {"compat", "fleet", "pki", "placement"},
    "pki": {"files", "locks", "pki"},
    "storage": BASE | {"image", "kvm", "ops", "placement", "storage"},
    "kvm": BASE | {"kvm"},
    "image": BASE | {"image"},
    "net": BASE | {"net"},
    "seed": BASE | {"seed"},
    "placement": {"errors", "model", "placement", "units"},
    "xml": {"arguments", "errors", "model", "nics", "units", "xml"},
    "nics": {"arguments", "errors", "model"},
    "vmfilter": {"arguments", "errors"},
    "compat": {"errors"},
    "optionguard": BASE | {"statereturn"},
    "saltfiles": {"terminal"},
    "optionstrength": {"terminal"},
    "wire": {"errors", "terminal"},
    # Read by Pythons that cannot read the rest.
    "__init__": {"minimums"},
    "preload": set(),
    "minimums": set(),
}
DUNDERS = {"__opts__", "__salt__", "__grains__", "__pillar__", "__context__", "__jid_event__"} | {
    "__utils__",
    "__active_provider_name__",
}
OF_ELEMENTS = {"find", "findall", "findtext", "iterfind"}
# The XML of pools and networks, of which one question is asked where libvirt is.
OTHER_XML = {LIBRARY / f"kvm/{name}.py" for name in ("host", "lifecycle", "pools")}
SALT_ALLOWED = {"compat", "errors", "fleet", "image", "net", "ops", "saltfiles"}


@functools.cache
def imports(path):
    """Return the full names of all modules that a file imports, with whether it is at the top."""
    return list(_imports(path))


def _imports(path):
    tree = trees.tree(path)
    top = set(map(id, tree.body))
    guarded = {id(n) for node in tree.body if isinstance(node, ast.Try) for n in node.body}
    for node in trees.nodes(path):
        at_top = id(node) in top or id(node) in guarded
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module
            if module == "saltvirt":
                yield from ((f"saltvirt.{alias.name}", at_top) for alias in node.names)
            else:
                yield module, at_top


def of_ours(path):
    """Return which parts of the library a file imports."""
    return {name.split(".")[1] for name, _top in imports(path) if name.startswith("saltvirt.")}


def part(path):
    """Return which part of the library a file belongs to."""
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


def offenders(paths, found):
    """Return ``{file: what is wrong in it}``."""
    return trees.offenders(paths, found, ROOT)


def test_the_rules_are_read_off_all_files():
    assert len(SALT_MODULES) > 10
    assert len(PARTS) > 150
    assert sum(bool(of_ours(path)) for path in PARTS) > 100


def test_arrows_point_one_way():
    def wrong(path):
        return of_ours(path) - MAY.get(part(path), BASE | {"xml"})

    assert offenders(PARTS, wrong) == {}


def test_imports_are_at_the_top_of_the_file():
    def wrong(path):
        return [name for name, at_top in imports(path) if not at_top]

    assert offenders([*SALT_MODULES, *PARTS], wrong) == {}


def test_dunders_stay_in_the_salt_modules():
    def wrong(path):
        return {n.id for n in trees.nodes(path) if isinstance(n, ast.Name)} & DUNDERS

    assert offenders(PARTS, wrong) == {}


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("libvirt", {"kvm"}),
        ("libvirt_qemu", {"kvm"}),
        ("salt.client", {"fleet"}),
        ("subprocess", {"image", "seed", "net"}),
        ("salt", SALT_ALLOWED),
    ],
)
def test_edges_are_where_they_belong(module, allowed):
    def wrong(path):
        used = {name for name, _top in imports(path)} | {
            name.split(".")[0] for name, _ in imports(path)
        }
        return [module] if module in used and part(path) not in allowed else []

    assert offenders(PARTS, wrong) == {}


def names_imported(path):
    """Yield the names of all modules, functions and classes that a file imports."""
    for node in trees.nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def calls(path):
    """Yield ``(what, function, line)`` of calls like ``what.function()``; what may be ""."""
    for node in trees.nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            what = node.func.value
            yield what.id if isinstance(what, ast.Name) else "", node.func.attr, node.lineno


def test_elements_of_a_domain_are_read_and_built_in_xml_alone():
    def wrong(path):
        # ``re.findall`` and the like are functions of a module.
        modules = set(names_imported(path))
        found = [one for one in calls(path) if one[1] in OF_ELEMENTS and one[0] not in modules]
        return found + [one for one in calls(path) if one[0] == "ET"]

    others = [path for path in PARTS if part(path) != "xml" and path not in OTHER_XML]
    assert len(others) < len(PARTS) - len(OTHER_XML) - 10
    assert offenders(others, wrong) == {}


def test_a_master_needs_no_libvirt():
    def wrong(path):
        return of_ours(path) & {"kvm", "image", "seed", "ops"}

    assert offenders(sorted((ROOT / "_runners").glob("*.py")), wrong) == {}


@pytest.mark.parametrize(("kind", "more"), [("_engines", set()), ("_clouds", {"ops"})])
def test_engines_and_clouds_ask_libvirt_and_no_more(kind, more):
    def wrong(path):
        # What is in the trash, libvirt does not know.
        return of_ours(path) - {"arguments", "config", "errors", "kvm"} - more

    assert offenders(sorted((ROOT / kind).glob("*.py")), wrong) == {}


@pytest.mark.parametrize("kind", ["_grains", "_output"])
def test_what_stays_loaded_for_ever_does_not_pin_the_library(kind):
    # One grain has it laid aside, for jobs to take up: tests/unit/test_preload.py.
    for path in (ROOT / kind).glob("*.py"):
        assert not [name for name, _top in imports(path) if name.startswith("saltvirt")]


def test_nothing_but_the_declared_dependencies_is_imported():
    known = {"saltvirt", "salt", "cryptography", "yaml", "libvirt", "pycdlib", "pyroute2"} | {
        "libvirt_qemu",  # a part of libvirt-python
        "guestfs",  # in the worker, which the system's own Python runs
        *sys.stdlib_module_names,
    }

    def wrong(path):
        # The worker is a program of its own, whose files import each other.
        worker = path.parent.name == "worker"
        beside = {one.stem for one in path.parent.glob("*.py")} if worker else set()
        return {name.split(".")[0] for name, _top in imports(path)} - known - beside

    assert offenders([*SALT_MODULES, *PARTS], wrong) == {}
