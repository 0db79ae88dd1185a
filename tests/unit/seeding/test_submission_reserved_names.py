"""A host that is told to make a VM by hand asks the master whether it may have its name."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import keypairs
import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.salt.context import Context
from saltvirt.seeding import existing
from saltvirt.vm.create.host import create


@pytest.fixture
def asked():
    """The questions that the master has heard."""
    return []


@pytest.fixture
def context(opts, host, asked):
    """The context of a call on hyper1, whose master has the hypervisors ``hyper*``."""
    path = Path(__file__).resolve().parents[3] / "_pillar/virtkey.py"
    spec = importlib.util.spec_from_file_location("virtkey_pillar", path)
    pillar = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pillar)
    pillar.__opts__ = {**opts, "virt": {"hypervisors": "hyper*"}}

    def ask(_opts, external):
        asked.append(external)
        return pillar.ext_pillar("hyper1", {}, **external["virtkey"])

    Path(opts["pki_dir"], "minion.pem").write_text(keypairs.named("hyper1")[1])
    minion = {"master": "10.0.0.1", "pki_dir": opts["pki_dir"], "id": "hyper1"}
    return Context(settings=host, opts=minion, ask=ask)


@pytest.mark.parametrize("name", ["hyper9", "HYPER9"])
@pytest.mark.parametrize("work", [create.create, create.show])
@pytest.mark.parametrize("seed", [True, False])
def test_a_vm_with_a_hypervisors_name_is_refused(hypervisor, context, name, work, seed):
    given = {"seed": seed, "pub_key": None, "priv_key": None}
    deployment = hypervisor.deployment(name, **given)
    on_host = replace(context, settings=hypervisor.settings)

    with pytest.raises(BadArgument, match="the master refused: name: a VM cannot be called"):
        work(on_host, deployment)

    assert not list(hypervisor.root.rglob(f"*{name}*"))


@pytest.mark.parametrize("work", ["apply", "mkconfig"])
def test_no_key_of_such_a_name_is_made(context, tmp_path, work):
    calls = {
        "apply": lambda: existing.apply(
            context,
            tmp_path,
            "hyper9",
            None,
            (None, None),
            approve_key=False,
            install=False,
            prep_install=False,
        ),
        "mkconfig": lambda: existing.mkconfig(
            context, None, str(tmp_path / "out"), "hyper9", (None, None), approve_key=False
        ),
    }

    with pytest.raises(BadArgument, match="a VM cannot be called 'hyper9'"):
        calls[work]()

    assert not (tmp_path / "out").exists() and not (tmp_path / "etc").exists()


def test_any_other_name_is_a_vms(hypervisor, context, asked):
    on_host = replace(context, settings=hypervisor.settings)

    assert create.create(on_host, hypervisor.deployment("web1")) is True

    assert asked == [{"virtkey": {"name": "web1"}}]


def test_what_the_master_has_ordered_is_not_asked_again(hypervisor, context, asked):
    ordered = replace(context, settings=hypervisor.settings, functions={"event.fire_master": print})

    create.create(ordered.reporting("web1", "tag"), hypervisor.deployment("web1"))

    assert asked == []


@pytest.mark.parametrize("answer", [{}, {"virtkey": {"error": "nobody authorized hyper1"}}])
def test_a_master_of_an_older_release_keeps_nobody_from_working(hypervisor, context, answer):
    older = replace(context, settings=hypervisor.settings, ask=lambda *_args: answer)

    assert create.create(older, hypervisor.deployment("hyper9")) is True


def test_without_a_master_nobody_is_asked(hypervisor, context, asked):
    local = {**context.opts, "file_client": "local"}
    on_host = replace(context, settings=hypervisor.settings, opts=local)

    assert create.create(on_host, hypervisor.deployment("hyper9")) is True
    assert asked == []
