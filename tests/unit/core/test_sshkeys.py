"""Public keys for logins are checked, and no message repeats the given value."""

import subprocess

import pytest
from saltvirt.core import sshkeys
from saltvirt.core.errors import BadArgument, BadConfig
from saltvirt.core.options import config
from saltvirt.vm import spec

ARGUMENT = "ssh_authorized_keys"
TYPES = {"ed25519": [], "rsa": ["-b", "2048"], "ecdsa": ["-b", "521"]}


def generate_pair(folder, kind, comment="anna@desk"):
    """Return a key pair as ssh-keygen makes it: ``(public, private)``."""
    path = folder / f"{kind}-{len(list(folder.iterdir()))}"
    argv = ["ssh-keygen", "-q", "-t", kind, *TYPES[kind], "-N", "", "-C", comment, "-f", path]
    subprocess.run(argv, check=True)
    return path.with_name(f"{path.name}.pub").read_text(), path.read_text()


@pytest.fixture
def pair(tmp_path):
    """A key pair of a current type."""
    return generate_pair(tmp_path, "ed25519")


@pytest.mark.parametrize("kind", TYPES)
def test_keys_of_ssh_keygen_are_accepted(tmp_path, kind):
    public, _private = generate_pair(tmp_path, kind)

    assert sshkeys.read_keys(ARGUMENT, public) == (public.strip(),)


def test_a_list_and_a_text_with_a_key_in_each_line_are_the_same(tmp_path):
    keys = [generate_pair(tmp_path, "ed25519")[0].strip() for _ in range(2)]
    text = f"# of the desk\n\n{keys[0]}\r\n{keys[1]}\n{keys[0]} again\n"

    assert sshkeys.read_keys(ARGUMENT, keys) == sshkeys.read_keys(ARGUMENT, text) == tuple(keys)
    assert sshkeys.read_keys(ARGUMENT, None) == sshkeys.read_keys(ARGUMENT, []) == ()


@pytest.mark.parametrize("text", ["", "\n", "# none yet\n"])
def test_a_text_without_a_key_is_refused(text):
    with pytest.raises(BadArgument, match="there is no key in it"):
        sshkeys.read_keys(ARGUMENT, text)


def test_a_key_of_a_security_token_is_accepted_by_its_type():
    # Both have a type, a point of a curve and an application; ssh-keygen would need a token.
    body = "AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    key = f"sk-ssh-ed25519@openssh.com {body}AAAABHNzaDo="

    assert sshkeys.read_keys(ARGUMENT, key) == (key,)


def test_a_private_key_is_refused_and_not_repeated(pair):
    for value in (pair[1], [pair[0], pair[1]], pair[1].replace("\n", " ")):
        with pytest.raises(BadArgument, match="that is a private key") as caught:
            sshkeys.read_keys(ARGUMENT, value)
        assert pair[1].splitlines()[1][:12] not in str(caught.value)


def test_a_wrong_key_is_refused_with_its_number(pair):
    kind, body, comment = pair[0].split()
    wrong = {
        f'command="reboot" {pair[0]}': "without options",
        f"cert-authority {pair[0]}": "without options",
        f"{kind} {body[:-8]} {comment}": "not a complete public key",
        f"ssh-rsa {body}": "not a complete public key",
        f"{kind}": "not a complete public key",
        f"{kind} ???": "not a complete public key",
        f"{kind} {body} a\x1b[2J": "control characters",
        f"{kind} {body} {'a' * 20000}": "control characters, or more than 16384 letters",
        "hello": "without options",
    }

    for value, reason in wrong.items():
        with pytest.raises(BadArgument, match=f"^{ARGUMENT}: key 2: .*{reason}") as caught:
            sshkeys.read_keys(ARGUMENT, [random_public_key(), value])
        assert body not in str(caught.value)


def random_public_key():
    """Return a public key without a private one."""
    return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPt3s3pgYnnXQQxiL6PhC6JlRVFrOXdeFEa3fMQvKD6y nobody"


@pytest.mark.parametrize("value", [7, {"key": 1}, [7], [["a"]]])
def test_a_value_that_is_neither_text_nor_list_is_refused(value):
    with pytest.raises(BadArgument, match="a list of public keys"):
        sshkeys.read_keys(ARGUMENT, value)


def test_too_many_keys_are_refused():
    with pytest.raises(BadArgument, match="101 keys; at most 100"):
        sshkeys.read_keys(ARGUMENT, "x\n" * 101)


def test_master_and_host_refuse_the_same(pair):
    options = {"ssh_authorized_keys": pair[1]}

    for read_options in (
        lambda: spec.requirements_from_master("web1", 1, 64, options),
        lambda: spec.deployment(config.HostSettings(), "web1", 1, 64, options),
    ):
        with pytest.raises(BadArgument, match="that is a private key"):
            read_options()


def test_an_option_that_is_no_list_of_texts_is_not_repeated():
    with pytest.raises(BadConfig, match="ssh_authorized_keys: expected text or a list") as caught:
        _ = config.host_settings({"virt": {"seed": {"ssh_authorized_keys": {"k": "SECRET"}}}}).seed
    assert "SECRET" not in str(caught.value)
