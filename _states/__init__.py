"""States of Salt Virt."""
