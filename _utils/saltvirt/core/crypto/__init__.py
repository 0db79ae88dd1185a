"""Keys, sealed secrets and signed answers."""
