"""A minion without a master that renders the formula of this checkout."""

import pytest
import salt.config
import saltonce
from formulakit import ROOT


@pytest.fixture(scope="module", autouse=True)
def templates():
    """Compile the formula's templates only once."""
    with pytest.MonkeyPatch.context() as patch:
        saltonce.templates_are_compiled(patch)
        yield


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Options of a masterless minion with this checkout as its file server."""
    folder = tmp_path_factory.mktemp("minion")
    # The formula alone: Salt lists all served files several times for each call.
    (folder / "states").mkdir()
    (folder / "states" / "hypervisor").symlink_to(ROOT / "hypervisor")
    opts = salt.config.minion_config(None)
    opts.update(
        id="bare",
        file_client="local",
        root_dir=str(folder),
        file_roots={"base": [str(folder / "states")]},
        **{key: str(folder / key) for key in ("cachedir", "pki_dir", "extension_modules")},
    )
    return dict(opts)
