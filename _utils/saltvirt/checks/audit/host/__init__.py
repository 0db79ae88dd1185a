"""The facts that a host reports to ``virt.audit``."""
