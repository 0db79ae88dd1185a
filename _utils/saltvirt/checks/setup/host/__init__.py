"""The facts that a host reports to ``virt.setup_check``."""
