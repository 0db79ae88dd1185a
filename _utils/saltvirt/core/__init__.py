"""What knows nothing of a VM's life; master and hosts use it."""
