"""Warnings about parts of a seed that a guest will not read or serve, known from its image."""

from collections.abc import Iterator

from saltvirt.core.arguments import hide_credentials
from saltvirt.core.seedmethods import GUESTFS, SeedMethod
from saltvirt.seeding.seedmodel import Inspection

_OURS = "NoCloud"


def find_unread_parts(
    image: str, method: SeedMethod, content: Inspection | None, *, has_ssh_keys: bool
) -> tuple[str, ...]:
    """
    Return the warnings to show before a VM is made, one line each.

    content
        The image's content; None if the image was not inspected: then there are no warnings.
    """
    if content is None or content.root is None:
        return ()
    return tuple(
        _find_warnings(
            f"image {hide_credentials(image)}", method, content, has_ssh_keys=has_ssh_keys
        )
    )


def _find_warnings(
    image: str, method: SeedMethod, content: Inspection, *, has_ssh_keys: bool
) -> Iterator[str]:
    if method.is_for_cloud_init and content.has_cloud_init and _reads_other_sources(content):
        datasource_names = ", ".join(content.datasources or ["nowhere"])
        yield (
            f"cloud-init of {image} looks for its data in {datasource_names} alone "
            f"(datasource_list), not in {_OURS}: it reads neither the minion's identity nor "
            f"ssh_authorized_keys; add {_OURS} there, or give seed_method={GUESTFS.name}"
        )
    if has_ssh_keys and not content.has_ssh_server:
        yield (
            f"ssh_authorized_keys let no user in yet: {image} has no SSH server; install one in "
            "it, or by user_data (packages: [openssh-server])"
        )


def _reads_other_sources(content: Inspection) -> bool:
    return content.datasources is not None and _OURS not in content.datasources
