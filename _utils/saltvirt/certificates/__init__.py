"""TLS certificates of the hypervisors."""
