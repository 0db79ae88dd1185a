"""What Salt's own modules are wrapped in: the runner functions of the master."""
