"""A call is checked and parsed by its runner function, and by nothing below that."""

import fleetkit
import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import config
from saltvirt.vm import profiles, spec
from saltvirt.vm.create.master import deploy, vmrequest
from saltvirt.vm.create.master.many import manyrequest, run
from saltvirt.vm.create.master.many.manyrequest import Call

PARSERS = [
    (spec, "requirements_from_master"),
    (spec, "check_options"),
    (profiles, "images"),
    (profiles, "entries"),
    (config, "policy"),
]


@pytest.fixture
def cloud(monkeypatch, opts, tmp_path):
    return fleetkit.cloud(monkeypatch, opts, tmp_path)


def parse_nothing_more(monkeypatch):
    """Fail where a call is parsed from here on."""

    def parse(*_args, **_options):
        raise AssertionError("parsed again")

    for module, function in PARSERS:
        monkeypatch.setattr(module, function, parse)


@pytest.mark.parametrize("how", [deploy.dry_run, deploy.deploy])
def test_below_the_runner_function_one_vm_is_not_parsed_again(cloud, monkeypatch, how):
    disks = [{"name": "data", "image": "salt://data.qcow2"}]
    request = fleetkit.request(image="salt://a.qcow2", disks=disks, spread_over="rack")
    parse_nothing_more(monkeypatch)

    assert how(cloud.master, request)
    assert request.images == {"salt://a.qcow2", "salt://data.qcow2"}


@pytest.mark.parametrize("how", [run.dry_run, run.deploy_many])
def test_below_the_runner_function_many_vms_are_not_parsed_again(cloud, monkeypatch, how):
    vms = [{"name": name, "cpu": 1, "mem": 1, "image": "salt://a.qcow2"} for name in "ab"]
    requests = manyrequest.parse_requests(vms, fleetkit.terms(placement="pack"))
    parse_nothing_more(monkeypatch)

    assert how(cloud.master, Call(requests=requests, per_host=1, max_parallel=1))


@pytest.mark.parametrize(
    "given",
    [
        {"placement": "random"},
        {"spread_over": 7},
        {"headroom": "yes"},
        {"force": "yes"},
        {"wait": 1},
        {"wait_s": -1},
    ],
)
def test_terms_that_make_no_sense_are_refused_by_their_names(given):
    (argument,) = given

    with pytest.raises(BadArgument, match=f"^{argument}: "):
        vmrequest.parse_terms(fleetkit.SETTINGS, **given)
