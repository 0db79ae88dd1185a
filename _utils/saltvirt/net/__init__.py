"""The host's own network: bridges, how they are kept over a reboot, and its firewall."""
