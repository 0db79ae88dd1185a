"""Salt Virt, rebuilt: a private-cloud controller for KVM and libvirt inside Salt."""

__version__ = "1.0.0.dev1"
