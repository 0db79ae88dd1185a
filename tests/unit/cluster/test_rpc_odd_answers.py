"""Odd values in seldom used parts of a host's answer are shown in one line."""

import json

import keypairs
import pytest
from saltvirt.certificates.master import certificates
from saltvirt.cluster import progress
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.cluster.rpc import replies as hearing
from saltvirt.core import wire
from saltvirt.core.crypto import signed
from saltvirt.core.journal import records
from saltvirt.core.options.config import MasterSettings
from saltvirt.migration.master import evacuate, moveexecutor
from saltvirt.placement.answers import Figures
from saltvirt.storage.master import images

HUGE = 2.0**63


@pytest.mark.parametrize(
    "state_return", [{}, {"a": 1}, {"a": {}}, {"a": {"comment": 1}}, {"a": {"result": True}}]
)
def test_a_state_with_a_nonsense_result_has_failed(state_return):
    reply = minions.Reply(minion="h1", value=state_return)

    assert certificates._outcome(reply) == ("", "its answer cannot be read")


@pytest.mark.parametrize(
    ("stage", "figures", "line"),
    [
        ("Fetching", {"done_bytes": "x", "total_bytes": [1]}, "vm: Fetching 0B"),
        ("Fetching", {"done_bytes": 1, "total_bytes": -1}, "vm: Fetching 1B"),
        ("Fetching", {"done_bytes": float("inf"), "total_bytes": 10**400}, "vm: Fetching 0B"),
        ("Moving", {"percent": {}, "rate_bytes_s": None}, "vm: Moving 0 %, 0B to go"),
    ],
)
def test_figures_that_are_no_numbers_are_shown_as_0(stage, figures, line):
    assert progress.text("vm", stage, figures) == line


def test_a_hosts_progress_is_shown_in_one_line(monkeypatch):
    shown_lines = []

    class Cloud:
        opts = {}

        def progress(self, stage, **figures):
            shown_lines.append((stage, figures))

    data = {"name": "web", "stage": "Moving\nhyper1: done", "detail": ["a\nb"], "percent": 3}
    monkeypatch.setattr(hostcommands, "_read_signed_event", lambda *_args: data)

    hostcommands.progress_watcher(Cloud(), "tag", "h1", "web")("tag", {"id": "h1"})
    data["stage"] = "x" * 10_000
    hostcommands.progress_watcher(Cloud(), "tag", "h1", "web")("tag", {"id": "h1"})

    assert shown_lines[0] == (
        "Moving hyper1: done",
        {"name": "web", "detail": "['a\\nb']", "percent": 3},
    )
    assert len(shown_lines[1][0]) == 400


def test_an_impossible_time_is_reported():
    assert records.time_text(1) == "1970-01-01 00:00:01 UTC"
    for since in (HUGE, -HUGE, 2.0**40 * 2.0**20):
        assert records.time_text(since) == "an impossible time"


def test_figures_of_a_move_are_numbers():
    assert wire.read("h1", "virt.migrate", Figures, {"total_ms": 3, "x": "y"}).shown() == {
        "total_ms": 3
    }
    for odd_value in ("3", None, -1, 2**70, [3]):
        with pytest.raises(wire.BadAnswer):
            wire.read("h1", "virt.migrate", Figures, {"total_ms": odd_value})
    assert moveexecutor.Figures is Figures


def test_a_digest_is_a_text_and_a_state_true_or_false(monkeypatch):
    class Found:
        answers = ("h1", "h2")

        def reasons(self):
            return {}

    replies = {
        "h1": minions.Reply(minion="h1", value="digest"),
        "h2": minions.Reply(minion="h2", value={"a": [1]}),
    }
    monkeypatch.setattr(images, "survey_images", lambda *_args: Found())
    monkeypatch.setattr(minions, "ask", lambda *_args, **_options: replies)
    monkeypatch.setattr(images.inventory, "all_hosts", lambda _cloud: ["h2"])
    monkeypatch.setattr(images, "act", lambda *_args, **_options: [1])
    monkeypatch.setattr(evacuate, "act", lambda *_args: "on")
    cloud = Cloud(opts={}, settings=MasterSettings(), progress=lambda *_args, **_figures: None)

    with pytest.raises(
        images.MasterError, match="h2 answers virt.image_pull with something"
    ) as caught:
        images.pull(cloud, "salt://a", None, {})
    assert caught.value.table == {"pulled": {"h1": "digest"}}
    with pytest.raises(wire.BadAnswer, match="h2 answers virt.image_build"):
        images.build(cloud, "salt://a", "a", "h2", {})
    with pytest.raises(wire.BadAnswer, match="h2 answers virt.maintenance"):
        evacuate.set_maintenance(cloud, "h2", "on")


def test_a_very_long_error_of_a_host_is_cut():
    answer = signed.SignedAnswer(minion="h1", about="1", why="x" * 100_000, retcode=1)

    assert len(hearing.reply_from_answer(answer).error) < 5000


OWN = keypairs.named("hyper1")


def _heard(value, about="1"):
    packed = signed.pack(
        signed.SignedAnswer(minion="h1", about=about, value=value), OWN[1].encode()
    )
    return signed.unpack(packed, OWN[0], minion="h1", about="1").value


def test_a_name_and_a_text_within_an_answer_are_one_line():
    assert _heard({"a\nb\tc": "a\nb\tc"}) == {r"a\nb\tc": "a b\tc"}


def test_a_too_deeply_nested_answer_is_not_understood():
    for depth, is_heard in ((60, True), (65, False), (300, False)):
        value = json.loads("[" * depth + "]" * depth)
        if is_heard:
            assert _heard(value) == value
            continue
        with pytest.raises(signed.NotUnderstood, match="deeper than 64 levels"):
            _heard(value)


def test_the_line_about_an_answer_to_another_job_is_short():
    with pytest.raises(signed.NotSigned) as refused:
        _heard(1, about="2\n" * 10_000)

    assert len(str(refused.value)) < 300 and "\n" not in str(refused.value)
