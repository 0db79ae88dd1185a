"""A host is shut out though a step fails: the other steps are done, the failed one is named."""

import msgpack
import pytest
from askedca import ask
from saltvirt.ca import store
from saltvirt.certificates.master import allowing, certificates
from saltvirt.cluster import candidates, membership, minionkeys
from saltvirt.core.errors import MasterError, NameTaken
from saltvirt.core.salt import compat
from saltvirt.seeding.master import authorization
from test_allowing import master, notices, secured, states  # noqa: F401 (fixtures)

PLANTED = msgpack.packb({"a": 1})


def refused(opts, *hosts):
    """Return the error of shutting hosts out."""
    with pytest.raises(MasterError) as caught:
        allowing.disallow(opts, list(hosts), store.utc_now())
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_host_is_shut_out_despite_planted_files(secured, notices):  # noqa: F811
    folder = membership.folder(secured)
    for place in ("issued", "revoked", "enrolled"):
        (folder / place).mkdir(exist_ok=True)
        (folder / place / "x.p").write_bytes(PLANTED)

    answer = allowing.disallow(secured, ["hyper3"], store.utc_now())

    assert answer["disallowed"] == ["hyper3"] and len(answer["revoked"]) == 1
    assert membership.read_listed(secured).is_disallowed("hyper3")


def test_certificates_are_revoked_though_the_list_of_hosts_cannot_be_written(
    secured,  # noqa: F811
    notices,  # noqa: F811
):
    (membership.folder(secured) / "hypervisors.json").write_text("{")

    error = refused(secured, "hyper3")

    assert states(secured)["hyper3"] == {"revoked"}
    reason = "hyper3: the certificates are revoked, but the list of hosts is not written"
    assert reason in str(error)
    assert error.table["disallowed"] == [] and len(error.table["revoked"]) == 1


def test_a_host_is_listed_though_its_certificates_cannot_be_revoked(secured, notices):  # noqa: F811
    (membership.folder(secured) / "cakey.pem").write_text("lost")

    error = refused(secured, "hyper3")

    assert membership.read_listed(secured).is_disallowed("hyper3")
    assert "hyper3: shut out, but not all is revoked: hyper3: the CA's key" in str(error)
    assert notices.hosts == [["hyper1", "hyper2"]]
    # The revocation is on record: the next list has it.
    assert states(secured)["hyper3"] == {"revoked"}


def test_one_hosts_certificates_keep_no_other_hosts_from_being_revoked(
    secured,  # noqa: F811
    notices,  # noqa: F811
    monkeypatch,
):
    revoked = certificates._revoke_valid

    def fails_for_one(opts, rows, now):
        if any(row["host"] == "hyper2" for row in rows):
            raise OSError("Input/output error")  # no real disk fails for one file alone
        return revoked(opts, rows, now)

    monkeypatch.setattr(certificates, "_revoke_valid", fails_for_one)

    error = refused(secured, "hyper2", "hyper3")

    assert states(secured)["hyper3"] == {"revoked"}
    assert len(error.table["revoked"]) == 1
    assert {"hyper2", "hyper3"} <= membership.read_listed(secured).disallowed


@pytest.mark.parametrize("target", ["hyper3", "unheard-of"])
def test_a_host_is_shut_out_though_no_certificate_can_be_listed(
    secured,  # noqa: F811
    notices,  # noqa: F811
    monkeypatch,
    target,
):
    def unreadable(_opts, _now):
        raise OSError("Input/output error")  # of a disk

    monkeypatch.setattr(certificates, "holders", unreadable)
    with pytest.raises(MasterError, match="the certificates cannot be listed: Input/output"):
        allowing.revoke(secured, target, store.utc_now())

    assert membership.read_listed(secured).is_disallowed(target)


def test_a_planted_record_of_a_key_is_ignored(opts):
    minionkeys.accept(opts, "web1", "a key")
    minionkeys.accept(opts, "web2.p", "another key")
    folder = minionkeys._note_path(opts, "any").parent
    (folder / "x.p").write_bytes(PLANTED)
    (folder / "%").write_text("a key")
    (folder / "large.p").write_text("K" * 100_000)
    (folder / "folder.p").mkdir()

    assert minionkeys.read_vm_keys(opts) == {"web1": "a key", "web2.p": "another key"}
    assert [path.name for path in minionkeys.find_foreign_files(opts)] == [
        "%",
        "folder.p",
        "large.p",
        "x.p",
    ]


def test_a_damaged_authorization_is_passed_over(opts):
    path = authorization._file(opts, "web1").path
    path.parent.mkdir(parents=True)
    path.write_text("{")

    assert authorization.list_unused(opts) == {}


KEYS = {"bytes": b"\xff\xfe\x00bad", "words": b"not a key at all", "nothing": b""}


@pytest.mark.parametrize("content", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("badpub1", {"waiting": {"badpub1": compat.UNREADABLE}}),
        ("odd name", {"odd_ids": {"odd name": candidates.ODD_ID_MESSAGE}}),
    ],
)
def test_a_waiting_file_that_is_no_key_is_shown_without_a_fingerprint(
    opts, content, name, expected
):
    compat.KeyStore(opts).accept("hyper1", "K")
    folder = membership.folder(opts).parent / "minions_pre"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)

    members = allowing.show_members(opts)
    assert {key: members[key] for key in ("waiting", "odd_ids") if key in members} == expected
    assert minionkeys.read_accepted(opts, name) is None
    minionkeys.refuse_taken(opts, name)


def test_a_file_longer_than_any_key_is_no_key(opts):
    folder = membership.folder(opts).parent / "minions_pre"
    folder.mkdir(exist_ok=True)
    (folder / "badpub5").write_text("A" * 2_000_000)

    assert compat.KeyStore(opts).read("badpub5") == ("pending", "")


def test_an_accepted_file_that_is_no_key_keeps_its_name(opts):
    folder = membership.folder(opts).parent / "minions"
    (folder / "web1").write_bytes(b"\xff\xfe")

    with pytest.raises(NameTaken, match="a minion called 'web1' is accepted"):
        minionkeys.refuse_taken(opts, "web1")


CLAIM = {"fqdn": "hyper1.site-b", "ipv4": ["10.1.0.1"]}


def test_allowing_a_host_takes_its_name_back_from_others(opts, notices):  # noqa: F811
    for minion_id in ("hyper1.site-a", "hyper1.site-b"):
        compat.KeyStore(opts).accept(minion_id, "K")
    place = certificates.open_authorities(opts)
    allowing.allow(opts, ["hyper1.site-a"])
    ask(place, "hyper1.site-a", now=store.utc_now(), grains=CLAIM)

    answer = allowing.allow(opts, ["hyper1.site-b"])

    (row,) = place.issued()
    assert answer == {
        "allowed": ["hyper1.site-b"],
        "revoked": {"hyper1.site-a": [row["serial"]]},
        "told": {"hyper1.site-a": "in place"},
    }
    assert allowing.allow(opts, ["hyper1.site-b"]) == {"allowed": ["hyper1.site-b"]}


def test_a_host_that_misses_the_revocation_is_named(opts, notices):  # noqa: F811
    for minion_id in ("hyper1.site-a", "hyper1.site-b"):
        compat.KeyStore(opts).accept(minion_id, "K")
    allowing.allow(opts, ["hyper1.site-a"])
    ask(certificates.open_authorities(opts), "hyper1.site-a", now=store.utc_now(), grains=CLAIM)
    notices.silent = "hyper1.site-a"

    reason = "site-a that had such a name are revoked, but not every other host was updated"
    with pytest.raises(MasterError, match=reason) as caught:
        allowing.allow(opts, ["hyper1.site-b"])

    assert caught.value.table["allowed"] == ["hyper1.site-b"]
    assert membership.read_listed(opts).has("hyper1.site-b")
