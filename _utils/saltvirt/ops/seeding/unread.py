"""What a guest will not read, or not serve, of what it is given: known of its image, no error."""

from collections.abc import Iterator

from saltvirt.arguments import shown
from saltvirt.seed.model import Found

_OURS = "NoCloud"


def warnings(
    image: str, method: str, found: Found | None, *, has_ssh_keys: bool
) -> tuple[str, ...]:
    """
    Return what is to be known before a VM is made, one line each.

    method
        How it is seeded.
    found
        What the image has in it; None if nobody looked into it: then nothing is said.
    """
    if found is None or found.root is None:
        return ()
    return tuple(_of_image(f"image {shown(image)}", method, found, has_ssh_keys=has_ssh_keys))


def _of_image(image: str, method: str, found: Found, *, has_ssh_keys: bool) -> Iterator[str]:
    if method == "nocloud" and found.has_cloud_init and _is_elsewhere(found):
        where = ", ".join(found.datasources or ["nowhere"])
        yield (
            f"cloud-init of {image} looks for its data in {where} alone (datasource_list), not in "
            f"{_OURS}: it reads neither the minion's identity nor ssh_authorized_keys; add {_OURS} "
            "there, or give seed_method=guestfs"
        )
    if has_ssh_keys and found.has_ssh_server is False:
        yield (
            f"ssh_authorized_keys let nobody in yet: {image} has no SSH server; install one in it, "
            "or by user_data (packages: [openssh-server])"
        )


def _is_elsewhere(found: Found) -> bool:
    return found.datasources is not None and _OURS not in found.datasources
