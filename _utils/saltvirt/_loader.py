"""Tell Salt's loader where the installed Salt modules are (entry point ``salt.loader``)."""

from importlib.util import find_spec

KINDS = ("modules", "runners", "states", "pillar", "grains", "output")


def dirs() -> dict[str, list[str]]:
    """Return ``{kind: [folder]}`` for every kind of Salt module that is installed."""
    specs = {kind: find_spec(f"saltvirt.{kind}") for kind in KINDS}
    return {
        kind: list(spec.submodule_search_locations or ()) for kind, spec in specs.items() if spec
    }
