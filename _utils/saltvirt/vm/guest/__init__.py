"""How a guest is reached, and what its agent and its console say."""
