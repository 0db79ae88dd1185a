"""Several masters as one cloud: what the top master asks of its cells, and how."""
