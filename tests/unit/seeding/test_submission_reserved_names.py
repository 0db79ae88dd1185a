"""A host that makes a VM by a local command asks the master whether the name is reserved."""

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
def questions():
    """The questions that the master was asked."""
    return []


@pytest.fixture
def context(opts, host, questions):
    """The context of a call on hyper1; its master has the hypervisors ``hyper*``."""
    path = Path(__file__).resolve().parents[3] / "_pillar/virtkey.py"
    spec = importlib.util.spec_from_file_location("virtkey_pillar", path)
    pillar = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pillar)
    pillar.__opts__ = {**opts, "virt": {"hypervisors": "hyper*"}}

    def ask(_opts, external):
        questions.append(external)
        return pillar.ext_pillar("hyper1", {}, **external["virtkey"])

    Path(opts["pki_dir"], "minion.pem").write_text(keypairs.named("hyper1")[1])
    minion = {"master": "10.0.0.1", "pki_dir": opts["pki_dir"], "id": "hyper1"}
    return Context(settings=host, opts=minion, ask=ask)


@pytest.mark.parametrize("name", ["hyper9", "HYPER9"])
@pytest.mark.parametrize("function", [create.create, create.show])
@pytest.mark.parametrize("seed", [True, False])
def test_a_vm_with_a_hypervisors_name_is_refused(hypervisor, context, name, function, seed):
    options = {"seed": seed, "pub_key": None, "priv_key": None}
    deployment = hypervisor.deployment(name, **options)
    host_context = replace(context, settings=hypervisor.settings)

    with pytest.raises(BadArgument, match="the master refused: name: a VM cannot be called"):
        function(host_context, deployment)

    assert not list(hypervisor.root.rglob(f"*{name}*"))


@pytest.mark.parametrize("function_name", ["apply", "mkconfig"])
def test_no_key_of_such_a_name_is_made(context, tmp_path, function_name):
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
        calls[function_name]()

    assert not (tmp_path / "out").exists() and not (tmp_path / "etc").exists()


def test_any_other_name_is_accepted(hypervisor, context, questions):
    host_context = replace(context, settings=hypervisor.settings)

    assert create.create(host_context, hypervisor.deployment("web1")) is True

    assert questions == [{"virtkey": {"name": "web1"}}]


def test_an_order_of_the_master_is_not_asked_about_again(hypervisor, context, questions):
    ordered_context = replace(
        context, settings=hypervisor.settings, functions={"event.fire_master": print}
    )

    create.create(ordered_context.reporting("web1", "tag"), hypervisor.deployment("web1"))

    assert questions == []


@pytest.mark.parametrize("answer", [{}, {"virtkey": {"error": "nobody authorized hyper1"}}])
def test_a_master_of_an_older_release_does_not_stop_a_build(hypervisor, context, answer):
    older_context = replace(context, settings=hypervisor.settings, ask=lambda *_args: answer)

    assert create.create(older_context, hypervisor.deployment("hyper9")) is True


def test_without_a_master_no_question_is_asked(hypervisor, context, questions):
    local_opts = {**context.opts, "file_client": "local"}
    host_context = replace(context, settings=hypervisor.settings, opts=local_opts)

    assert create.create(host_context, hypervisor.deployment("hyper9")) is True
    assert questions == []
