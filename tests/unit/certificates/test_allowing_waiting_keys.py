"""A waiting key has the same fingerprint in the commands of the master and of its host."""

from pathlib import Path

import keypairs
import pytest
from hostiletext import steering
from salt.utils.crypt import pem_finger
from saltvirt.certificates.master import allowing
from saltvirt.cluster import candidates
from saltvirt.core.errors import BadArgument


def test_keys_that_wait_are_shown_as_their_hosts_show_them(opts, tmp_path):
    public = keypairs.named("a guest")[0]
    key_file = tmp_path / "minion.pub"
    key_file.write_text(public)
    pending = Path(opts["pki_dir"]) / "minions_pre"
    pending.mkdir(parents=True, exist_ok=True)
    (pending / "newhost").write_text(public)

    members = allowing.show_members(opts)

    # A host shows this fingerprint, and not the one of salt-key -f on 3008.
    finger = pem_finger(str(key_file), sum_type=opts["hash_type"])
    assert members["waiting"] == {"newhost": finger}
    with pytest.raises(BadArgument, match="salt-run virt.allow shows its fingerprint") as refused:
        allowing.allow(opts, ["newhost"])
    assert "salt-key -f" not in str(refused.value)


ODD = [
    "hyper3\x1b[2A\r    hyper3",
    "a\x9b2J\x9b31mLOOKS LIKE hyper1\x9b0m",
    "b\x1b]0;title\x07",
    "c\nhypervisors:\n    hyper2:\n        fingerprint:\n            00:11",
    "d\u202egnp",
    "hyper\u200b3",
    "hyp\u0435r3",
    "hyper3 ",
    "hyper*",
    "-a",
    "$(reboot)",
]


@pytest.fixture
def odd_keys(opts):
    """Keys that wait under ids that a stranger chose, and one under a valid id."""
    pending = Path(opts["pki_dir"]) / "minions_pre"
    pending.mkdir(parents=True, exist_ok=True)
    public_key = keypairs.named("a guest")[0]
    (pending / "hyper3").write_text(keypairs.named("hyper1")[0])
    for minion_id in ODD:
        # A minion sends its public key in clear, so that a stranger can send it, too.
        (pending / minion_id).write_text(public_key)
    return public_key


def test_an_odd_id_is_named_as_hostile_and_has_no_fingerprint_to_compare(opts, tmp_path, odd_keys):
    members = allowing.show_members(opts)

    assert list(members["waiting"]) == ["hyper3"]
    assert sorted(members["odd_ids"]) == sorted(ODD)
    assert all("do not accept its key" in line for line in members["odd_ids"].values())
    (tmp_path / "minion.pub").write_text(odd_keys)
    finger = pem_finger(str(tmp_path / "minion.pub"), sum_type=opts["hash_type"])
    assert finger not in str(members)


# The other two ids are also legal targets: a glob, and an id with a space at its end.
@pytest.mark.parametrize("name", [name for name in ODD if name not in ("hyper*", "hyper3 ")])
def test_an_odd_id_is_suggested_in_no_command(opts, odd_keys, name):
    with pytest.raises(BadArgument) as refused:
        allowing.allow(opts, [name])

    assert "salt-key -a" not in str(refused.value) and steering(str(refused.value)) == set()


def test_an_odd_id_that_is_accepted_is_in_no_command_that_allows_others():
    candidate = candidates.Candidate(why="says that it is one", fingerprint="00", vm_on=[])

    command = candidates.allow_command(dict.fromkeys([*ODD, "hyper3"], candidate))

    assert command == "salt-run virt.allow hyper3"
    assert candidates.allow_command(dict.fromkeys(ODD, candidate)) is None
    assert candidates.suggest_ids("hyper", ODD) == ""
