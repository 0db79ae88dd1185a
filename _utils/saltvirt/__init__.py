"""Salt Virt, rebuilt: a private-cloud controller for KVM and libvirt inside Salt."""

import sys

from saltvirt import minimums

__version__ = "1.0.0.dev1"

# Who uses the library without Salt, as a test may, is not asked for one.
_salt = sys.modules.get("salt.version")
_reason = minimums.why_not(sys.version_info[:2], _salt.__version_info__[0] if _salt else None)
if _reason:
    # Salt's loader says these words to whoever asks for a module that imports this.
    raise ImportError(_reason)
