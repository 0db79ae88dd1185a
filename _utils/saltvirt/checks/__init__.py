"""The checks of a cloud: ``virt.audit``, ``virt.setup_check`` and ``virt.doctor``."""
