"""The cloud as one command of the master has it: its configuration, its client, its progress."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import salt.client
from salt.exceptions import SaltException

from saltvirt import compat, config
from saltvirt.config import MasterSettings
from saltvirt.errors import MasterError
from saltvirt.fleet import candidates, membership, progress
from saltvirt.fleet.silence import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """
    What every step of a command needs.

    opts
        The master's configuration.
    settings
        What of it is ours.
    progress
        Shows progress, see :func:`saltvirt.fleet.progress.callback`.
    is_reading
        The command changes nothing: a silent host costs two seconds at most.
    silence
        Who has been silent to this command.
    while_waiting
        Called now and then while a new minion is waited for; the wait ends where it returns False.
        Defaults to None.
    heard
        Called with each answer as it comes, a :class:`saltvirt.fleet.hearing.Reply`. Defaults to
        None: of many hosts, progress says how many have answered.
    """

    opts: Mapping[str, Any]
    settings: MasterSettings
    progress: Callable[..., None]
    is_reading: bool = False
    silence: Silence = field(default_factory=Silence)
    heard: Callable[[Any], None] | None = None
    while_waiting: Callable[[], bool] | None = None
    _minions: list[str] = field(default_factory=list, repr=False)

    @classmethod
    def of(
        cls,
        opts: Mapping[str, Any],
        events: Any = None,
        name: str = "",
        quiet: bool = False,
        *,
        is_reading: bool = False,
    ) -> "Cloud":
        """
        Return the cloud of a runner function.

        opts
            Salt's ``__opts__``.
        events
            Salt's ``__jid_event__``, by which progress is shown. Defaults to none, for silence.
        name
            What a line of progress begins with.
        quiet
            Show no progress. Defaults to False.
        is_reading
            See :class:`Cloud`. Defaults to False.
        """
        progress_callback = progress.callback(opts, events, name, quiet)
        settings = config.master_settings(opts)
        candidates.refuse_syndics(opts)
        candidates.refuse_targets(opts, settings.hypervisors)
        return cls(opts=opts, settings=settings, progress=progress_callback, is_reading=is_reading)

    @property
    def members(self) -> membership.Members:
        """Who is a hypervisor; read anew, so that ``virt.disallow`` stops what is under way too."""
        return membership.read_members(self.opts, self.settings.hypervisors)

    def minions(self) -> list[str]:
        """Return the ids of all minions of this master, those in VMs too, listed anew."""
        self._minions[:] = compat.KeyStore(self.opts).accepted()
        return [*self._minions]

    def known_minions(self) -> list[str]:
        """Return the same as they were listed last: of 21,000 it takes a second."""
        return [*self._minions] or self.minions()

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """
        Yield an open LocalClient; Salt's own errors come out as MasterError.

        Each question has its own: a client hears all events on one socket, which threads cannot
        share, and would keep the events that another of its users waits for.
        """
        try:
            with salt.client.get_local_client(mopts=dict(self.opts)) as local:
                yield local
        except SaltException as exc:
            raise MasterError(f"the Salt master does not answer: {exc}") from exc
