"""Changes of a whole domain: update, copy, move."""
