"""Judge what a host says of its images."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from saltvirt.fleet.findings import Finding


def linked_images(host: str, images: Iterable[Sequence[str]]) -> Iterator[Finding]:
    """Yield the cached images that have another name: ``[path, other name]``, empty if unknown."""
    for path, golden in (pair for pair in images if len(pair) == 2):
        copy = shlex.quote(f"{golden}.new")
        name = shlex.quote(golden)
        find = (
            f"there: find / -xdev -samefile {shlex.quote(path)}; replace each other name by a copy"
        )
        yield Finding(
            check="linked-images",
            where=host,
            what=f"{golden or 'another name'} is a hard link of {path}: what writes to it changes "
            "every disk that is based on that image",
            fix=f"there: cp -p --reflink=auto {name} {copy} && mv {copy} {name}"
            if golden
            else find,
        )
