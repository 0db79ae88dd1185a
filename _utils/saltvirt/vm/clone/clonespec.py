"""The options of a clone that its source does not have, from the call."""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.options import config
from saltvirt.vm import spec

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


def deployment_options(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the options of a :class:`saltvirt.core.model.Deployment` other than its VM.

    keywords
        The keyword arguments of ``virt.clone``; unknown ones are refused by name.
    """
    keywords = {key: value for key, value in keywords.items() if not key.startswith("__")}
    known_names = [*OPTIONS, *_GROUPS, *config.CONNECTION, "source", "name", "dry_run"]
    arguments.refuse_unknown(
        [key for key in keywords if key not in known_names], known_names, "virt.clone"
    )
    groups(keywords)
    return spec.deployment_options(spec.check_options(keywords))


def groups(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the groups that a call gives the clone instead of its source's."""
    return {
        key: arguments.names(key, keywords[key]) for key in _GROUPS if keywords.get(key) is not None
    }
