"""Salt Virt, rebuilt: a private-cloud controller for KVM and libvirt inside Salt."""

import sys

from saltvirt.core.salt import minimums

__version__ = "1.0.0.dev1"

# A process without Salt, such as a test, needs no Salt version.
_salt = sys.modules.get("salt.version")
_reason = minimums.why_not(sys.version_info[:2], _salt.__version_info__[0] if _salt else None)
if _reason:
    # Otherwise Python imports more modules of folders that it has already, and this file not again.
    for _name in [name for name in sys.modules if name.startswith("saltvirt.")]:
        del sys.modules[_name]
    # Salt's loader shows this message for each module that imports this package.
    raise ImportError(_reason)
