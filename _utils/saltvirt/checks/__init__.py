"""What is wrong with a cloud: ``virt.audit``, ``virt.setup_check`` and ``virt.doctor``."""
