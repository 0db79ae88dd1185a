"""What this host tells ``virt.setup_check``."""
