"""Salt modules as Salt's loader has them: with what it puts into their globals."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def load(kind, name, opts=None, **dunders):
    """Return a Salt module that works on the host of libvirt's own test driver."""
    spec = importlib.util.spec_from_file_location(f"face_{name}", ROOT / f"_{kind}" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    virt = {"connection": {"uri": "test:///default"}, **(opts or {})}
    module.__opts__ = {"virt": virt, "test": False}
    module.__pillar__, module.__grains__ = {}, {}
    for key, value in dunders.items():
        setattr(module, f"__{key}__", value)
    return module
