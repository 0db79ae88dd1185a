"""The context of one command on the master: configuration, client and progress."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import salt.client
from salt.exceptions import SaltException

from saltvirt.cluster import candidates, membership, progress
from saltvirt.cluster.rpc.waits import Silence
from saltvirt.core.errors import MasterError
from saltvirt.core.options import config
from saltvirt.core.options.config import MasterSettings
from saltvirt.core.salt import compat


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """
    The context that every step of a command needs.

    opts
        The master's configuration.
    settings
        The options of this project.
    progress
        Shows progress, see :func:`saltvirt.cluster.progress.callback`.
    is_reading
        The command changes nothing, so an unresponsive host costs at most two seconds.
    silence
        The hosts that have been unresponsive to this command.
    while_waiting
        Called now and then during the wait for a new minion; False ends the wait. Defaults to
        None.
    on_reply
        Called with each :class:`saltvirt.cluster.rpc.replies.Reply` as it comes. Defaults to None:
        with many hosts, progress shows the number of replies.
    """

    opts: Mapping[str, Any]
    settings: MasterSettings
    progress: Callable[..., None]
    is_reading: bool = False
    silence: Silence = field(default_factory=Silence)
    on_reply: Callable[[Any], None] | None = None
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
            Salt's ``__jid_event__``, which shows progress. Defaults to None, for no progress.
        name
            Prefix of each line of progress.
        quiet
            Show no progress. Defaults to False.
        """
        progress_callback = progress.callback(opts, events, name, quiet)
        settings = config.master_settings(opts)
        candidates.refuse_syndics(opts)
        candidates.refuse_targets(opts, settings.hypervisors)
        return cls(opts=opts, settings=settings, progress=progress_callback, is_reading=is_reading)

    @property
    def members(self) -> membership.Members:
        """The hypervisors, read anew, so that ``virt.disallow`` affects running commands, too."""
        return membership.read_members(self.opts, self.settings.hypervisors)

    def minions(self) -> list[str]:
        """Return the ids of all accepted minions, guests included, read anew."""
        self._minions[:] = compat.KeyStore(self.opts).accepted()
        return [*self._minions]

    def known_minions(self) -> list[str]:
        """Return the last result of :meth:`minions`: reading 21,000 ids takes a second."""
        return [*self._minions] or self.minions()

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """
        Yield an open LocalClient; turn Salt's errors into MasterError.

        Each question opens its own client: threads cannot share a client's event socket, and one
        question would take the events that another waits for.
        """
        try:
            with salt.client.get_local_client(mopts=dict(self.opts)) as local:
                yield local
        except SaltException as exc:
            raise MasterError(f"the Salt master does not answer: {exc}") from exc
