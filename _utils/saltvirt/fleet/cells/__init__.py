"""Several masters as one cloud: calls of the top master to the others, its cells."""
