"""Storage pools, volumes, secrets and snapshots."""
