"""What a guest will not read, or not serve, of what it is given: known of its image, no error."""

from collections.abc import Iterator

from saltvirt.arguments import hide_credentials
from saltvirt.seed.model import Inspection

_OURS = "NoCloud"


def warnings(
    image: str, method: str, content: Inspection | None, *, has_ssh_keys: bool
) -> tuple[str, ...]:
    """
    Return what is to be known before a VM is made, one line each.

    method
        How it is seeded.
    found
        What the image has in it; None if nobody looked into it: then nothing is said.
    """
    if content is None or content.root is None:
        return ()
    return tuple(
        _find_warnings(
            f"image {hide_credentials(image)}", method, content, has_ssh_keys=has_ssh_keys
        )
    )


def _find_warnings(
    image: str, method: str, content: Inspection, *, has_ssh_keys: bool
) -> Iterator[str]:
    if method == "nocloud" and content.has_cloud_init and _reads_other_sources(content):
        datasource_names = ", ".join(content.datasources or ["nowhere"])
        yield (
            f"cloud-init of {image} looks for its data in {datasource_names} alone "
            "(datasource_list), not in "
            f"{_OURS}: it reads neither the minion's identity nor ssh_authorized_keys; add {_OURS} "
            "there, or give seed_method=guestfs"
        )
    if has_ssh_keys and content.has_ssh_server is False:
        yield (
            f"ssh_authorized_keys let nobody in yet: {image} has no SSH server; install one in it, "
            "or by user_data (packages: [openssh-server])"
        )


def _reads_other_sources(content: Inspection) -> bool:
    return content.datasources is not None and _OURS not in content.datasources
