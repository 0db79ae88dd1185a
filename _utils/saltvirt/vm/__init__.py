"""The life of a VM on one host: create, clone, update, show, purge."""
