"""On a master that cannot identify the minion of a pillar request this project does nothing."""

import pytest
import salt.version
from saltvirt.core.errors import MasterError
from saltvirt.core.salt import compat


@pytest.mark.parametrize("release", ["3006.0", "3006.11", "3007.0", "3007.3", "3005.4", "unknown"])
def test_a_master_that_gives_any_minion_the_pillar_of_any_other_is_refused(release, monkeypatch):
    monkeypatch.setattr(salt.version, "__version__", release)

    with pytest.raises(MasterError) as refused:
        compat.refuse_old_master()

    assert str(refused.value) == (
        f"Salt {release} on this master gives any minion the pillar of any other, so that any "
        "guest could be a hypervisor: update it to 3006.12, 3007.4, 3008 or a later one of these "
        "lines"
    )


@pytest.mark.parametrize(
    "release", ["3006.12", "3006.12+5.gabc", "3006.25", "3007.4", "3008.0rc1", "3008.4", "3009"]
)
def test_a_master_that_checks_the_requesting_minion_is_accepted(release, monkeypatch):
    monkeypatch.setattr(salt.version, "__version__", release)

    compat.refuse_old_master()
