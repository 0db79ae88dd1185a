"""Several masters as one cloud: what the top master asks of the others, its cells, and how."""
