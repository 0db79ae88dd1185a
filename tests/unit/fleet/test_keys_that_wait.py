"""Keys that nobody has accepted yet are compared by two commands that show the same value."""

from pathlib import Path

import keypairs
import pytest
from salt.utils.crypt import pem_finger
from saltvirt.errors import BadArgument
from saltvirt.fleet import allowing


def test_keys_that_wait_are_shown_as_their_hosts_show_them(opts, tmp_path):
    public = keypairs.named("a guest")[0]
    own = tmp_path / "minion.pub"
    own.write_text(public)
    pending = Path(opts["pki_dir"]) / "minions_pre"
    pending.mkdir(parents=True, exist_ok=True)
    (pending / "newhost").write_text(public)

    shown = allowing.shown(opts)

    # What salt-key -f shows of it on 3008 is no help: a host shows this.
    finger = pem_finger(str(own), sum_type=opts["hash_type"])
    assert shown["waiting"] == {"newhost": finger}
    with pytest.raises(BadArgument, match="salt-run virt.allow shows its fingerprint") as refused:
        allowing.allow(opts, ["newhost"])
    assert "salt-key -f" not in str(refused.value)
