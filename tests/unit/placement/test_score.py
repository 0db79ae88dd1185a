"""The score of a host: the order of its weights, their documentation, and a VM's share."""

import json
import operator
import re
from pathlib import Path

import pytest
import told
from saltvirt.core.model import Requirements
from saltvirt.core.options import config
from saltvirt.placement import choose, fit, score

TESTS = Path(__file__).resolve().parents[2]
NEED = Requirements(name="new", vcpus=2, memory_mib=1024, disk_mib=8192)


def three_hosts():
    """Return the answers of a fleet to ``virt.host_info``."""
    return told.infos(json.loads((TESTS / "data/fleets/three.json").read_text()))


def test_every_amount_and_weight_is_in_the_order_of_the_dimensions():
    host = three_hosts()["hyper1"]
    names = [dimension.name for dimension in fit.DIMENSIONS]

    assert [*fit.free(host)] == [*fit.limits(host)] == names
    assert fit.needed(host, NEED) == tuple(getattr(NEED, name) for name in names)
    assert {d.weight_key for d in fit.DIMENSIONS} == config._MASTER["weights"].keys()
    for number, dimension in enumerate(fit.DIMENSIONS):
        assert score.ordered_weights({dimension.weight_key: 7.5}).index(7.5) == number


def test_the_page_has_the_default_weights():
    page = (TESTS.parent / "docs/configuration.md").read_text()
    row = re.search(r"^\| `virt:weights` \| `\{(.+)\}` \|", page, re.MULTILINE)[1]
    defaults = {d.weight_key: d.default_weight for d in fit.DIMENSIONS}

    shown = dict(part.split(": ") for part in row.split(", "))
    assert {key: float(weight) for key, weight in shown.items()} == defaults


def test_a_vm_lowers_the_score_by_its_own_share_on_every_host():
    limits, needed_amounts = (16, 65536, 10**6), (2, 1024, 8192)
    weights = score.ordered_weights()

    for free_amounts in (limits, (3, 2048, 10**5), needed_amounts):
        amounts_after = tuple(map(operator.sub, free_amounts, needed_amounts))
        score_change = score.share_left(free_amounts, limits, weights) - score.share_left(
            amounts_after, limits, weights
        )
        assert score_change == pytest.approx(score.share_left(needed_amounts, limits, weights))


def test_the_weights_decide_which_resource_matters():
    by_cpu = choose.evaluate(three_hosts(), NEED, {"memory": 0, "cpu": 1, "disk": 0})

    assert by_cpu[0].host == "hyper3"
