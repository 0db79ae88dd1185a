"""Where disks lie on a host, who needs them, and the one door by which they are removed."""
