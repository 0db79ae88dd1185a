"""Hypervisors that request another's names, or more certificates than they may have."""

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
def request_as(pillar, monkeypatch):  # noqa: F811
    """Return a function that requests certificates as one of three hypervisors."""
    grains_of_host = dict(GRAINS)
    for host in GRAINS:
        (membership.folder(pillar.__opts__).parent / "minions" / host).write_text("key")
    pillar.__opts__["virt"] = {"hypervisors": list(GRAINS)}
    minion_data = lambda minion, _opts: (minion, grains_of_host[minion], {})  # noqa: E731
    monkeypatch.setattr(salt.utils.minions, "get_minion_data", minion_data)

    def ask(host, grains=None, purposes=("libvirt-server",)):
        grains_of_host[host] = pillar.__opts__["grains"] = grains or grains_of_host[host]
        requests = {purpose: request() for purpose in purposes}
        data = pillar.ext_pillar(host, {}, certificates=requests, version=answer.VERSION)
        return data["libvirt_pki"]

    ask.opts = pillar.__opts__
    return ask


def names(answer):
    """Return the names and addresses that an answer certifies, or its error."""
    return answer.get("error") or {*answer["names"], *answer["addresses"]}


def test_a_host_with_a_vm_named_as_a_hypervisor_does_not_get_the_hypervisors_names(request_as):
    for host in GRAINS:
        request_as(host)
    lastseen.refresh(
        request_as.opts, lastseen.ReportedNames(names_by_host={"hyper3": ["hyper1", "hyper2"]})
    )

    assert names(request_as("hyper3", RIVAL)) == {"hyper3", "10.0.0.3"}
    lastseen.refresh(request_as.opts, lastseen.ReportedNames(names_by_host={"hyper3": []}))
    assert names(request_as("hyper1")) == {"hyper1", "hyper1.example.org", "10.0.0.1"}


def test_a_host_that_is_shut_out_during_its_request_has_no_certificate_afterwards(
    request_as, monkeypatch
):
    request_as("hyper3")
    is_open, may_go_on = threading.Event(), threading.Event()
    subjects = policy.subjects

    def slow(*args):
        is_open.set()
        may_go_on.wait(10)
        return subjects(*args)

    monkeypatch.setattr(policy, "subjects", slow)
    answer = {}
    thread = threading.Thread(
        target=lambda: answer.update(request_as("hyper3", purposes=("qemu-client",)))
    )
    thread.start()
    is_open.wait(10)
    membership.disallow(request_as.opts, ["hyper3"])
    threading.Timer(0.2, may_go_on.set).start()

    certificates.revoke_hosts(request_as.opts, ["hyper3"], store.utc_now())

    thread.join()
    assert "was shut out" in answer["error"]
    rows = certificates.list_certificates(
        certificates.open_authorities(request_as.opts), store.utc_now()
    )
    assert {row["state"] for row in rows if row["host"] == "hyper3"} == {"revoked"}


def test_of_countless_addresses_only_the_first_are_read(request_as):
    read_addresses = []

    class Many(list):
        def __iter__(self):
            for address in super().__iter__():
                read_addresses.append(address)
                yield address

    grains = {**GRAINS["hyper3"], "ipv4": Many(["127.0.0.1"] * 100_000)}
    assert policy.reachable(grains) == [] and len(read_addresses) < 300
