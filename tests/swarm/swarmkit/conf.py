"""The configuration of a swarm's master and hosts, and their keys."""

import json
from concurrent.futures import ProcessPoolExecutor

from swarmkit.settings import CHECKOUT, OWN, ROOT

MASTER = ROOT / "master"
HOSTS = ROOT / "m"
FAULTS = ROOT / "faults.json"
# A second configuration of the same master, without this project's runner: Salt's own.
CORE = MASTER / "core"
PUBLISH_PORT, RETURN_PORT = 4505, 4506
_COMMON = {
    "user": "root",
    "log_level": "error",
    "log_level_logfile": "warning",
    # As docs/security.md says.
    "zmq_filtering": True,
}


def master(spec):
    """Return the master's configuration."""
    return {
        **_COMMON,
        "interface": "127.0.0.1",
        "root_dir": str(MASTER),
        "pki_dir": str(MASTER / "pki"),
        "cachedir": str(MASTER / "cache"),
        "sock_dir": str(MASTER / "s"),
        "pidfile": str(MASTER / "pid"),
        "log_file": str(MASTER / "log"),
        "publish_port": PUBLISH_PORT,
        "ret_port": RETURN_PORT,
        "worker_threads": spec.workers,
        "minimum_auth_version": 3,
        "timeout": 15,
        "file_roots": {"base": [str(MASTER / "srv")]},
        "pillar_roots": {"base": [str(MASTER / "pillar")]},
        "runner_dirs": [str(CHECKOUT / "_runners")],
        "outputter_dirs": [str(CHECKOUT / "_output")],
        "utils_dirs": [str(CHECKOUT / "_utils")],
        "virt": {"timeout_s": 20, "hypervisors": "h[0-9]*"},
        **spec.options,
    }


def minion(spec):
    """Return the configuration that all hosts share."""
    return {
        **_COMMON,
        "master": "127.0.0.1",
        "master_ip": "127.0.0.1",
        "master_uri": f"tcp://127.0.0.1:{RETURN_PORT}",
        "master_port": RETURN_PORT,
        "publish_port": PUBLISH_PORT,
        "id": "template",
        "root_dir": str(ROOT / "template"),
        "acceptance_wait_time": 1,
        "random_reauth_delay": 2,
        "auth_timeout": 60,
        "mine_enabled": False,
        "module_dirs": [str(CHECKOUT / "_modules")],
        "utils_dirs": [str(CHECKOUT / "_utils")],
        # It asks systemd while it is loaded, which is not there.
        "disable_modules": ["systemd_service"],
        "enable_fqdns_grains": False,
        "enable_gpu_grains": False,
        **spec.options,
    }


def images(name, spec):
    """Return the image folder of a host, as that host itself sees it."""
    return (OWN if spec.is_apart else HOSTS / name) / "img"


def of_host(name, spec):
    """Return what is one host's own in its configuration."""
    folder = HOSTS / name
    return {
        "id": name,
        "root_dir": str(folder),
        "pki_dir": str(folder / "pki"),
        "cachedir": str(folder / "cache"),
        "sock_dir": str(folder / "s"),
        "pidfile": str(folder / "pid"),
        "log_file": str(folder / "log"),
        "extension_modules": str(folder / "cache/extmods"),
        "__role": "minion",
        "pillar": {},
        "virt": {
            "connection": {"uri": f"qemu+swarm://{folder}/libvirt"},
            "images": str(images(name, spec)),
            "state_dir": str(folder / "state"),
            "hypervisor": "qemu",
            # A seed must name one that guests could reach; there are no guests to try.
            "seed": {"master": "192.0.2.1"},
            "reserve_mib": 0,
            "disk_reserve_mib": 0,
            # The laws look at what a purge leaves.
            "trash_days": 0,
            "capacity": {
                "vcpus": spec.vcpus,
                "memory_mib": spec.memory_mib,
                "disk_mib": spec.disk_mib,
            },
        },
    }


def write(spec):
    """Write the configuration files; JSON is YAML."""
    for folder in ("etc", "core", "pki/minions", "srv", "pillar", "s", "cache"):
        (MASTER / folder).mkdir(parents=True, exist_ok=True)
    (MASTER / "etc/master").write_text(json.dumps(master(spec)))
    ours = ("runner_dirs", "outputter_dirs", "utils_dirs", "virt")
    bare = {name: one for name, one in master(spec).items() if name not in ours}
    (CORE / "master").write_text(json.dumps(bare))
    (ROOT / "etc").mkdir(exist_ok=True)
    (ROOT / "etc/minion").write_text(json.dumps(minion(spec)))
    FAULTS.write_text("[]")


def _key_pair(_number):
    """Return ``(private, public)`` as PEM, as Salt makes them."""
    from cryptography.hazmat.primitives import serialization as as_
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, 2048)
    return (
        key.private_bytes(
            as_.Encoding.PEM, as_.PrivateFormat.TraditionalOpenSSL, as_.NoEncryption()
        ),
        key.public_key().public_bytes(as_.Encoding.PEM, as_.PublicFormat.SubjectPublicKeyInfo),
    )


def keys(spec):
    """Make the hosts' keys, and have the master accept them."""
    with ProcessPoolExecutor(2) as pool:
        pairs = pool.map(_key_pair, range(spec.hosts), chunksize=8)
        for name, (private, public) in zip(spec.ids, pairs, strict=True):
            for folder in ("pki", "cache", "s", "img", "state", "libvirt"):
                (HOSTS / name / folder).mkdir(parents=True, exist_ok=True)
            own = HOSTS / name / "pki/minion.pem"
            own.touch(mode=0o400)
            own.write_bytes(private)
            (HOSTS / name / "pki/minion.pub").write_bytes(public)
            (MASTER / "pki/minions" / name).write_bytes(public)
