"""Hypervisors that want what is another's: its names, its certificates, one more of their own."""

import threading

import pytest
import salt.utils.minions
from askedca import request
from saltvirt.ca import answer, policy, store
from saltvirt.certificates.master import certificates
from saltvirt.cluster import membership
from saltvirt.cluster.inventory import lastseen
from test_policy import pillar  # noqa: F401 (a fixture)

GRAINS = {
    f"hyper{n}": {"fqdn": f"hyper{n}.example.org", "host": f"hyper{n}", "ipv4": [f"10.0.0.{n}"]}
    for n in (1, 2, 3)
}
RIVAL = {"fqdn": "hyper1.example.org", "host": "hyper3", "ipv4": ["10.0.0.1", "10.0.0.3"]}


@pytest.fixture
def asks(pillar, monkeypatch):  # noqa: F811
    """Ask as a hypervisor of three, with what it says of itself; the pillar's options."""
    said = dict(GRAINS)
    for one in GRAINS:
        (membership.folder(pillar.__opts__).parent / "minions" / one).write_text("key")
    pillar.__opts__["virt"] = {"hypervisors": list(GRAINS)}
    found = lambda minion, _opts: (minion, said[minion], {})  # noqa: E731
    monkeypatch.setattr(salt.utils.minions, "get_minion_data", found)

    def ask(host, grains=None, purposes=("libvirt-server",)):
        said[host] = pillar.__opts__["grains"] = grains or said[host]
        wanted = {purpose: request() for purpose in purposes}
        told = pillar.ext_pillar(host, {}, certificates=wanted, version=answer.VERSION)
        return told["libvirt_pki"]

    ask.opts = pillar.__opts__
    return ask


def names(told):
    """Return what an answer lets a host be called, or why there is none."""
    return told.get("error") or {*told["names"], *told["addresses"]}


def test_who_says_it_has_a_vm_of_a_hypervisors_name_does_not_get_that_ones_names(asks):
    for host in GRAINS:
        asks(host)
    lastseen.refresh(
        asks.opts, lastseen.ReportedNames(names_by_host={"hyper3": ["hyper1", "hyper2"]})
    )

    assert names(asks("hyper3", RIVAL)) == {"hyper3", "10.0.0.3"}
    lastseen.refresh(asks.opts, lastseen.ReportedNames(names_by_host={"hyper3": []}))
    assert names(asks("hyper1")) == {"hyper1", "hyper1.example.org", "10.0.0.1"}


def test_who_says_so_has_no_certificates_of_others_revoked(asks):
    place = certificates.open_authorities(asks.opts)
    main = store.Store(place.folder)
    now = store.utc_now()
    for host in GRAINS:
        asks(host, purposes=("libvirt-server",))
    (place.stores["qemu"].folder / "separate").unlink()
    for row in place.issued():
        (main.folder / "issued" / f"{row['serial']}.json").write_text(
            f'{{"host": "{row["host"]}", "purpose": "qemu-client", "serial": "{row["serial"]}", '
            f'"not_after": "{row["not_after"]}"}}'
        )
    lastseen.refresh(
        asks.opts, lastseen.ReportedNames(names_by_host={"hyper3": ["hyper1", "hyper2"]})
    )

    asks("hyper3", purposes=("qemu-client",))

    states = {row["host"]: row["state"] for row in certificates.list_certificates(place, now)}
    assert (states["hyper1"], states["hyper2"]) == ("good", "good")


def test_who_is_shut_out_while_its_question_is_open_has_nothing_afterwards(asks, monkeypatch):
    asks("hyper3")
    is_open, may_go_on = threading.Event(), threading.Event()
    subjects = policy.subjects

    def slow(*args):
        is_open.set()
        may_go_on.wait(10)
        return subjects(*args)

    monkeypatch.setattr(policy, "subjects", slow)
    told = {}
    asking = threading.Thread(target=lambda: told.update(asks("hyper3", purposes=("qemu-client",))))
    asking.start()
    is_open.wait(10)
    membership.disallow(asks.opts, ["hyper3"])
    threading.Timer(0.2, may_go_on.set).start()

    certificates.revoke_hosts(asks.opts, ["hyper3"], store.utc_now())

    asking.join()
    assert "was shut out" in told["error"]
    rows = certificates.list_certificates(certificates.open_authorities(asks.opts), store.utc_now())
    assert {row["state"] for row in rows if row["host"] == "hyper3"} == {"revoked"}


def test_a_host_with_countless_addresses_keeps_nobody_waiting(asks):
    looked_at = []

    class Many(list):
        def __iter__(self):
            for one in super().__iter__():
                looked_at.append(one)
                yield one

    grains = {**GRAINS["hyper3"], "ipv4": Many(["127.0.0.1"] * 100_000)}
    assert policy.reachable(grains) == [] and len(looked_at) < 300
