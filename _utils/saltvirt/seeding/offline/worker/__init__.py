"""The program that reads and writes guests' disks; see ``__main__.py``."""
