"""What a user typed to have a VM cloned: all that its source does not say."""

from collections.abc import Mapping
from typing import Any

from saltvirt import arguments, config, spec

OPTIONS = (
    "start",
    "autostart",
    "seed",
    "install",
    "config",
    "pub_key",
    "priv_key",
    "saltenv",
    "seed_method",
    "install_from",
    "user_data",
    "ssh_authorized_keys",
)
_GROUPS = ("affinity", "anti_affinity")


def how(given: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return what a :class:`saltvirt.spec.Deployment` says beside its VM.

    given
        The keyword arguments of ``virt.clone``; unknown ones are refused by name.
    """
    given = {key: value for key, value in given.items() if not key.startswith("__")}
    known = [*OPTIONS, *_GROUPS, *config.CONNECTION, "source", "name", "dry_run"]
    arguments.refuse_unknown([key for key in given if key not in known], known, "virt.clone")
    groups(given)
    return spec.how(spec.checked(given))


def groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the groups that a call gives the clone in place of its source's."""
    return {key: arguments.names(key, given[key]) for key in _GROUPS if given.get(key) is not None}
