"""How Sphinx makes the pages: ``make docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import answershapes  # noqa: E402
import comparison  # noqa: E402
import reference  # noqa: E402

project = "Salt Virt, rebuilt"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = project
exclude_patterns = ["_build"]
myst_heading_anchors = 4
# What a page shows of a shell or of YAML has names to be replaced in it.
highlight_language = "none"


def _write_reference(_app):
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    found = [
        *reference.pages(HERE.parent),
        ("answers", answershapes.page()),
        ("comparison", comparison.page(HERE.parent)),
    ]
    pages = {f"{name}.rst": text for name, text in found}
    for path in folder.iterdir():
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        # One that is as it was is not read again.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def setup(app):
    """Have the reference written before the pages are looked for."""
    app.connect("config-inited", lambda app, _config: _write_reference(app))
