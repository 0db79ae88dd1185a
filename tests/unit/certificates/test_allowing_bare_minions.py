"""Minions that say nothing of themselves are shown with their keys, so that one can allow them."""

import keypairs
from saltvirt.certificates.master import allowing
from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.inventory import lastseen
from saltvirt.core.salt import compat


def test_a_bare_host_that_says_nothing_of_itself_is_shown_and_a_vm_is_not(opts, monkeypatch):
    for one in ("bare1", "bare2", "out", "web1"):
        minionkeys.accept(opts, one, keypairs.named("a guest")[0])
    membership.disallow(opts, ["out"])
    monkeypatch.setattr(lastseen, "read_all", lambda _opts: {"hyper1": {"web1": "running"}})

    shown = allowing.show_members(opts)

    fingerprint = compat.KeyStore(opts).fingerprint("bare1")
    assert shown["others"] == {"bare1": fingerprint, "bare2": fingerprint}
    assert "more_others" not in shown and "allow_them" not in shown
    monkeypatch.setattr(allowing, "_MAX_OTHER_MINIONS", 1)
    shown = allowing.show_members(opts)
    assert (list(shown["others"]), shown["more_others"]) == (["bare1"], 1)
