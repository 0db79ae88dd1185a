"""The minion's own library and options, for scripts that run on its host with its Python."""

import sys

import salt.config
import salt.minion

sys.path.insert(0, "/var/cache/salt/minion/extmods/utils")


def options():
    """Return the minion's options; as in a running minion, its master is resolved."""
    opts = salt.config.minion_config("/etc/salt/minion")
    return {**opts, **salt.minion.resolve_dns(opts)}
