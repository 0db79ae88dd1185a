"""What Salt's own modules share: the runner functions of the master, the functions of hosts."""
