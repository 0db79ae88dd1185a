"""What this host tells ``virt.doctor``, and what it mends when that says so."""
