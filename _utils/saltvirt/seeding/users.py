"""Default users of distributions' cloud images, which get the SSH keys given to cloud-init."""

# By libguestfs' name of the distribution (guestfs(3), inspect_get_distro). Source: the images that
# each distribution offers, and cloud-init's config/cloud.cfg.tmpl.
DEFAULT_USERS = {
    "almalinux": "almalinux",
    "alpinelinux": "alpine",
    "archlinux": "arch",
    "centos": "cloud-user",
    "debian": "debian",
    "fedora": "fedora",
    "opensuse": "opensuse",
    "rhel": "cloud-user",
    "rocky": "rocky",
    "sles": "sles",
    "ubuntu": "ubuntu",
}


def default_user(system: str | None) -> str | None:
    """
    Return the default user of a distribution's cloud images, None if unknown.

    system
        The worker's name of the system, such as ``debian 12``.
    """
    return DEFAULT_USERS.get((system or "").partition(" ")[0])
