"""Jobs of the master on its minions, and their replies."""
