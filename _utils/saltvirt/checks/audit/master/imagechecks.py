"""Judge a host's answer about its images."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from saltvirt.core.findings import Finding


def linked_images(host: str, images: Iterable[Sequence[str]]) -> Iterator[Finding]:
    """Yield cached images with another hard link: ``[path, link]``, the link empty if unknown."""
    for path, linked_path in (pair for pair in images if len(pair) == 2):
        copy = shlex.quote(f"{linked_path}.new")
        name = shlex.quote(linked_path)
        find_command = (
            f"there: find / -xdev -samefile {shlex.quote(path)}; replace each other name by a copy"
        )
        yield Finding(
            check="linked-images",
            where=host,
            what=f"{linked_path or 'another name'} is a hard link of {path}: what writes to it "
            "changes "
            "every disk that is based on that image",
            fix=f"there: cp -p --reflink=auto {name} {copy} && mv {copy} {name}"
            if linked_path
            else find_command,
        )
