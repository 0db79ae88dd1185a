"""The ``virt:`` options of a minion and of a master."""
