"""Minions that have asked a master for their pillars, as it keeps that."""

import salt.cache


def asked(opts, minion_id, grains):
    """Have the master know a minion's grains: Salt 3006 has no bank of theirs, 3008 both."""
    cache = salt.cache.factory(opts)
    cache.store("grains", minion_id, grains)
    cache.store(f"minions/{minion_id}", "data", {"grains": grains})
