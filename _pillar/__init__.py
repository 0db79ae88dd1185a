"""External pillars of Salt Virt: what a minion may ask of its master."""
