"""Minions without grains are shown with their keys, so that an operator can allow them."""

import keypairs
from saltvirt.certificates.master import allowing
from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.salt import compat


def test_a_host_without_grains_is_shown_and_a_vm_is_not(opts, monkeypatch):
    for minion_id in ("bare1", "bare2", "out", "web1"):
        minionkeys.accept(opts, minion_id, keypairs.named("a guest")[0])
    membership.disallow(opts, ["out"])
    monkeypatch.setattr(lastseen, "read_all", lambda _opts: {"hyper1": {"web1": "running"}})

    members = allowing.show_members(opts)

    fingerprint = compat.KeyStore(opts).fingerprint("bare1")
    assert members["others"] == {"bare1": fingerprint, "bare2": fingerprint}
    assert "more_others" not in members and "allow_them" not in members
    monkeypatch.setattr(allowing, "_MAX_OTHER_MINIONS", 1)
    members = allowing.show_members(opts)
    assert (list(members["others"]), members["more_others"]) == (["bare1"], 1)
