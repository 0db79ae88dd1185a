"""External pillars of Salt Virt: requests of minions to their master."""
