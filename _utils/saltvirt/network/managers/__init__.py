"""The programs that configure a host's network, and their files."""
