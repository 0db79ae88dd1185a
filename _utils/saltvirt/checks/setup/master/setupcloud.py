"""What one check of a setup has found, and the levels of its findings; read an answer of a host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltvirt.cells.cellstatus import Fault
from saltvirt.checks.engine import CloudFacts, Host
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.checks.setup.setupanswer import SetupFacts, SetupRefusal
from saltvirt.core import wire
from saltvirt.core.errors import BadConfig

FUN = "virt.setup_facts"
# What a finding prevents: NEEDED stops every deployment, the others alone do not.
NEEDED, IMAGES, MOVING, CELLS, HINT = LEVELS = (
    "needed",
    "for images without a minion",
    "for moving VMs",
    "for VMs of a cell",
    "hint",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCloud(CloudFacts[MasterFacts, SetupFacts]):
    """
    What one check of a setup has found.

    begun_s, ended_s
        The master's time before the question and after the answers, in seconds since 1970.
    unasked_hosts
        Hosts that were not asked, and that the asked hosts tried to reach.
    unsigned_replies
        What hosts without a signed answer replied to Salt, which any minion may have sent.
    grains
        The cached grains of the asked hosts; any may be missing.
    cell_faults
        The faults of this master's cells.
    """

    begun_s: float
    ended_s: float
    unasked_hosts: Sequence[str] = ()
    unsigned_replies: Mapping[str, str] = field(default_factory=dict)
    grains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cell_faults: Sequence[Fault] = ()


SetupHost = Host[SetupCloud, SetupFacts]


def read_answer(host: str, value: object) -> SetupFacts:
    """
    Return a host's answer.

    Raises BadConfig if options of the host cannot be used, ``wire.BadAnswer`` for another answer.
    """
    if isinstance(value, Mapping) and "refused_option" in value:
        refusal: SetupRefusal = wire.read(host, FUN, SetupRefusal, value)
        raise BadConfig(refusal.refused_option)
    facts: SetupFacts = wire.read(host, FUN, SetupFacts, value)
    return facts
