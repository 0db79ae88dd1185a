"""
What root of a hypervisor puts before its module ``virt_answers``: answers as they come.

It does what is ordered, changes the answer by what the job's id says, and signs it with the host's
own key, as real answers are.
"""

import base64
import json
import random
import zlib

from saltvirt.core.options import config
from saltvirt.core.salt import answering

__virtualname__ = "virt"
NASTY = [
    None,
    True,
    -1,
    2**63,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "a\nb",
    "t1",
    "hyper1",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202eevil",
    "../../../../tmp/out",
    "--help",
    "x" * 5000,
    [],
    {},
    [[[[[[]]]]]],
]


def __virtual__():
    """Load always."""
    return __virtualname__


def _decompress(text):
    packed = text.removeprefix("zlib ")
    return text if packed == text else zlib.decompress(base64.b64decode(packed)).decode()


def _places(value, out):
    for key, one in list(value.items() if isinstance(value, dict) else enumerate(value)):
        out.append((value, key))
        if isinstance(one, dict | list):
            _places(one, out)
    return out


def _changed(value, draw):
    whole = [value]
    for _time in range(draw.randint(1, 3)):
        holder, key = draw.choice(_places(whole, []))
        if draw.random() < 0.3 and isinstance(holder, dict):
            del holder[key]
        elif draw.random() < 0.2 and isinstance(holder[key], dict):
            holder[key][str(draw.choice(NASTY))] = draw.choice(NASTY)
        else:
            holder[key] = draw.choice(NASTY)
    return whole[0]


def signed(order, **kwargs):
    """
    Do what is ordered, and answer something else.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.signed '{fun: virt.vm_state, arg: []}'
    """
    jid = str(kwargs.get("__pub_jid", ""))
    usual = answering.answer(
        __opts__,
        __salt__,
        __context__,
        jid,
        order,
        lambda: config.host_settings(__opts__, __pillar__, __grains__),
    )
    said, draw = json.loads(_decompress(usual["said"])), random.Random(jid)
    value = _changed(said["value"], draw)
    why = said["why"] if draw.random() < 0.8 else str(draw.choice(NASTY))
    return answering.sign(
        __opts__, jid, fun=said["fun"], value=value, why=why, retcode=said["retcode"]
    )


def refuse_order(order_id):
    """
    Say anything.

    CLI Example:

    .. code-block:: bash

        salt hyper1 virt.refuse_order 4f2c8a52c0f14de0a5f8a0a5f0f3b1c7
    """
    return {"\x1b[2J": order_id}
