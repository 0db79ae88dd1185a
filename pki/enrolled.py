"""What each host was last certified for, and when it asked: one small file for each."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from saltvirt import files, locks
from saltvirt.pki.ca import PkiError

PER_HOUR = 60
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """
    One host.

    subjects
        The names and addresses of its newest certificate.
    asked
        When it was given certificates within the last hour, as ISO 8601.
    """

    subjects: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()

    def counted(self, host: str, now: datetime, per_hour: int) -> "Enrolled":
        """Return it with one more time; raise PkiError if that is too often."""
        times = [one for one in self.asked if now - datetime.fromisoformat(one) < _HOUR]
        if len(times) >= per_hour:
            again = datetime.fromisoformat(times[-per_hour]) + _HOUR
            raise PkiError(
                f"{host} has had certificates {len(times)} times within an hour "
                f"(virt:pki:requests_per_hour); it gets more after {again:%H:%M} UTC"
            )
        return replace(self, asked=(*times, now.isoformat()))


class Register:
    """All hosts; the folder is that of the CAs."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder) / "enrolled"

    @contextmanager
    def turn(self, host: str) -> Iterator[None]:
        """Let one question of a host be answered at a time."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.held(self._folder / f"{host}.lock"):
            yield

    def read(self, host: str) -> Enrolled:
        """Return what is known of a host."""
        try:
            found = json.loads((self._folder / f"{host}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Enrolled()
        return Enrolled(subjects=tuple(found["subjects"]), asked=tuple(found["asked"]))

    def write(self, host: str, known: Enrolled) -> None:
        """Note what is known of a host."""
        files.write(self._folder / f"{host}.json", json.dumps(asdict(known)).encode())

    def holders(self, hosts: Iterable[str]) -> dict[str, str]:
        """Return ``{name or address: host}`` of what these hosts were last certified for."""
        return {text: host for host in sorted(hosts) for text in self.read(host).subjects}
