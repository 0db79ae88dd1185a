"""The host's own network: bridges, how they survive a reboot, and the firewall."""
