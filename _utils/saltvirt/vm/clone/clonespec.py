"""The options of a clone that its source does not have, from the call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CloneOptions:
    """
    The options of a clone.

    deployment
        The fields of a :class:`saltvirt.core.model.Deployment` other than its VM.
    groups
        ``affinity`` and ``anti_affinity``, as far as they replace those of the source.
    """

    deployment: Mapping[str, Any] = field(repr=False)
    groups: Mapping[str, Any]


def parse(keywords: Mapping[str, Any]) -> CloneOptions:
    """Return the options of a call of ``virt.clone``; raise BadArgument for unknown ones."""
    keywords = {key: value for key, value in keywords.items() if not key.startswith("__")}
    known_names = [*OPTIONS, *_GROUPS, *config.CONNECTION, "source", "name", "dry_run"]
    arguments.refuse_unknown(
        [key for key in keywords if key not in known_names], known_names, "virt.clone"
    )
    return CloneOptions(
        deployment=spec.deployment_options(spec.check_options(keywords)),
        groups={
            key: arguments.names(key, keywords[key])
            for key in _GROUPS
            if keywords.get(key) is not None
        },
    )
