"""The context that a workflow gets from the Salt module that calls it."""

import keypairs
from saltvirt.core.crypto import signed
from saltvirt.core.salt.context import Context

PILLAR = {"virt": {"image_max_gib": 7, "connection": {"uri": "qemu:///pillar"}}}


def test_a_call_has_the_options_of_its_host_and_overrides_them():
    opts = {"id": "hyper1"}

    context = Context.of(opts, PILLAR, {}, {}, ask=print, connection="test:///default")

    assert (context.settings.image_max_gib, context.settings.uri) == (7, "test:///default")
    assert (context.opts, context.ask) == (opts, print)


def test_a_context_that_reports_fires_its_progress_signed_and_with_the_name(tmp_path):
    public, private = keypairs.named("hyper1")
    (tmp_path / "minion.pem").write_text(private)
    opts = {"id": "hyper1", "pki_dir": str(tmp_path)}
    events = []
    functions = {"event.fire_master": lambda data, tag: events.append((tag, data))}
    context = Context.of(opts, {}, {}, functions)

    context.progress("Fetching", bytes=1)
    context.reporting("web1", "salt/virt/init").progress("Fetching", bytes=2)

    ((tag, packed),) = events
    progress = signed.unpack(packed, public, minion="hyper1", about="salt/virt/init")
    assert tag == "salt/virt/init"
    assert progress.value == {"name": "web1", "stage": "Fetching", "bytes": 2}
