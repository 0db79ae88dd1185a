"""Names of processes, labels of file systems and leases may be any bytes, and break no command."""

import os
import subprocess
import sys

import pytest
from saltvirt.core.errors import SeedError
from saltvirt.network.managers import ifupdown
from saltvirt.seeding.offline import hostmount, lending

_NAMED = "import ctypes; ctypes.CDLL(None).prctl(15, b'\\xff\\xfe'); print(flush=True); input()"


def test_the_name_of_another_users_process_may_be_any_bytes():
    with subprocess.Popen(
        [sys.executable, "-c", _NAMED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            process.stdout.readline()
            assert lending._is_killed(str(process.pid), os.getuid() + 1) is False
            assert process.poll() is None
        finally:
            process.kill()


def test_a_program_may_print_any_bytes_that_a_guest_has_chosen():
    argv = ["sh", "-c", r"printf 'label \377\376' >&2; exit 1"]

    with pytest.raises(SeedError, match="the disk: .*label"):
        hostmount.run(argv, "the disk")


def test_a_lease_keeps_the_bytes_of_its_server(tmp_path):
    path = tmp_path / "dhclient.leases"
    path.write_bytes(b'option domain-name "\xff";\n')

    text = ifupdown._lease_text(path)

    assert text.encode(errors="surrogateescape") == path.read_bytes()
