"""<permissions> of a pool's folder and of a volume."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.xml import fields

KEYS = ("mode", "owner", "group", "label")
# An owner or a group that libvirt does not set.
_UNSET = "-1"


def _load(permission: ET.Element) -> str | None:
    return permission.text if permission.text not in ("", _UNSET) else None


# The form of each element in <permissions>.
FORM = fields.Form(_load, fields.TEXT.dump)


def from_call(value: object) -> dict[str, str] | None:
    """
    Return permissions from a mapping or, as old formulas have it, a list of mappings.

    ``mode`` is octal, as text or as the digits of a number, which is what Salt makes of ``0770``;
    ``owner`` and ``group`` are numbers of a user and a group; -1 sets none, as in libvirt.
    """
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        value = {key: setting for part in value for key, setting in part.items()}
    requested = arguments.mapping("permissions", value)
    if requested is None:
        return None
    arguments.refuse_unknown_keys("permissions", requested, KEYS)
    out = {key: _text(key, requested[key]) for key in KEYS if requested.get(key) is not None}
    return {key: value for key, value in out.items() if value != _UNSET} or None


def _text(key: str, value: object) -> str:
    if key in ("owner", "group"):
        return str(arguments.whole_number(f"permissions:{key}", value, least=-1))
    if key == "mode":
        if isinstance(value, bool) or not re.fullmatch(r"0?[0-7]{1,4}", str(value)):
            raise BadArgument("permissions:mode", f"{value!r} is not a mode such as '0711'")
        return f"0{int(str(value), 8):o}"
    return str(value)
