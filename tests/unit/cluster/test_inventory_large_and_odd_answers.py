"""Very large answers and text in place of versions cost no more time than others."""

import importlib.util
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tightclouds
import told
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, x25519
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, listing
from saltvirt.core.crypto import signed
from saltvirt.core.options.config import MasterSettings
from saltvirt.migration.master import recovery, settle
from saltvirt.placement import generation, whatif

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20


def seconds(function, *args):
    """Return how much processor time a call takes."""
    begun = time.process_time()
    function(*args)
    return time.process_time() - begun


def hosts_table(data):
    """Return the table of ``virt.host_info``, by its file, as Salt's loader has it."""
    path = ROOT / "_output/virt_hosts.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("t", path))
    module.__spec__.loader.exec_module(module)
    return module.output(data)


def test_vms_are_listed_by_state_in_one_pass_however_many_states_a_host_makes_up():
    vms = {f"vm{n}": f"state{n}" for n in range(50_000)}

    assert seconds(listing._by_state, vms) < 5
    assert listing._by_state({"b": "on", "a": "on", "c": "off"}) == {"on": ["a", "b"], "off": ["c"]}


def test_a_word_of_megabytes_is_printed_unwrapped():
    info = {
        "cpu": {"vcpus_limit": 1, "vcpus_committed": 0},
        "memory": {"limit_mib": 1, "committed_mib": 0},
        "storage": {"limit_mib": 1, "committed_mib": 0},
        "domain_types": {"default": "kvm", "why": ""},
        "vms": {},
        "unreadable": {"web": "x" * 4 * MIB},
    }

    assert seconds(hosts_table, {"h3": info}) < 1
    assert len(hosts_table({"h3": info})) < 2000


@pytest.mark.parametrize("text", ["", "x", "9.x", "\N{SUPERSCRIPT ONE}.0", "8." + "1" * 5000])
def test_text_that_is_no_version_counts_as_oldest(text):
    host_facts = told.but(tightclouds.host(1), versions={"libvirt": text, "qemu": text})
    host_generation = generation.for_host(host_facts)

    assert generation.numbers(text) < (9, 1)
    needs = whatif.needs_of_move(told.moving(newer=[["a thing", "9.1"]], cpu_qemu="9.1"))
    assert len(list(generation.reasons(host_generation, needs))) == 2


@pytest.mark.parametrize("name", ["pc-1." + "1" * 5000, "1" * MIB + "x"])
def test_a_machine_type_of_megabytes_has_no_version(name):
    assert seconds(generation.family, name) < 1
    assert generation.family(name) == (name, None)


@pytest.mark.parametrize("ends", [[], ["7.2"], ["5.0", "7.2", "8.0"], ["x", "y"]])
def test_a_family_of_machine_types_without_two_ends_is_no_traceback(ends):
    machines = {"x86_64": {"versions": {"pc-q35-": ends}, "names": []}}
    host_generation = generation.for_host(told.but(tightclouds.host(1), machines=machines))

    assert list(
        generation.machine_reasons(
            host_generation, whatif.needs_of_move(told.moving(machine="pc-q35-7.2"))
        )
    )


def test_of_a_vms_needs_only_pairs_count():
    odd_pairs = [["tpm", "9.0"], [], ["one"], ["a", "b", "c"]]

    assert whatif.needs_of_move(told.moving(newer=odd_pairs)).newer == (("tpm", "9.0"),)


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP256R1()),
        ed25519.Ed25519PrivateKey.generate(),
        x25519.X25519PrivateKey.generate(),
    ],
)
def test_a_key_of_another_kind_signs_nothing(key):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = key.public_key().public_bytes(serialization.Encoding.PEM, form).decode()

    with pytest.raises(signed.NotSigned, match="no RSA key"):
        signed.unpack({"said": "{}", "signature": "AAAA"}, pem, minion="h3", about="1")


def test_the_number_of_moves_that_a_host_can_make_up_is_limited(opts, monkeypatch):
    fields = {"purpose": "arrival", "phase": "ready", "since": 0, "uuid": None, "error": None}
    move_fields = {"source": "h1", "target": None, "is_live": False}
    moves = {
        f"vm{n}": [SimpleNamespace(token=f"t{n}", **fields, **move_fields)] for n in range(5000)
    }
    survey = inventory.Survey(answers={"h1": {}, "h3": moves})
    settled = []
    monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: ["h1", "h3"])
    monkeypatch.setattr(inventory, "survey", lambda *_args: survey)
    monkeypatch.setattr(recovery, "settle", lambda *_args, **_options: settled.append(1) or "over")
    cloud = Cloud(opts=opts, settings=MasterSettings(), progress=lambda *_a, **_k: None)

    with pytest.raises(recovery.Unsettled, match="h3 says that 5,000 moves are on record there"):
        settle.settle_all(cloud)
    assert len(settled) == 100
