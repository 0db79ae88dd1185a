"""What the three checks have in common on the master: the question to all hosts, and its facts."""
