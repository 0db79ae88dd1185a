"""Tell Salt's loader where the installed Salt modules are (entry point ``salt.loader``)."""

from importlib.util import find_spec
from pathlib import Path

KINDS = ("modules", "runners", "states", "pillar", "grains", "output", "engines", "clouds")


def dirs() -> dict[str, list[str]]:
    """Return ``{kind: [folder]}`` for every kind of Salt module that is installed."""
    specs = {kind: find_spec(f"saltvirt.{kind}") for kind in KINDS}
    return {
        kind: list(spec.submodule_search_locations or ()) for kind, spec in specs.items() if spec
    }


def formula() -> str:
    """Return the file root that has the formula ``hypervisor``: the package's, or the checkout."""
    packaged = Path(__file__).parents[2] / "formula"
    return str(packaged if packaged.exists() else Path(__file__).resolve().parents[4])
