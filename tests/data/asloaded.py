"""A file of a Salt module, loaded as Salt's loader does: with its dunders, and nothing else."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def module(path, uri="test:///default", **opts):
    """Return the module of a file, which talks to one libvirt."""
    place = ROOT / path
    spec = importlib.util.spec_from_file_location(f"{place.parent.name}{place.stem}", place)
    loaded = importlib.util.module_from_spec(spec)
    loaded.__opts__ = {"test": False, "virt": {"connection": {"uri": uri}}, **opts}
    loaded.__pillar__, loaded.__grains__, loaded.__salt__ = {}, {}, {}
    spec.loader.exec_module(loaded)
    return loaded
