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

    shown = allowing.show_members(opts)

    fingerprint = compat.KeyStore(opts).fingerprint("bare1")
    assert shown["others"] == {"bare1": fingerprint, "bare2": fingerprint}
    assert "more_others" not in shown and "allow_them" not in shown
    monkeypatch.setattr(allowing, "_MAX_OTHER_MINIONS", 1)
    shown = allowing.show_members(opts)
    assert (list(shown["others"]), shown["more_others"]) == (["bare1"], 1)
