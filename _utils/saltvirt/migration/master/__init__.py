"""The master's side of moves: choose a host, run the protocol, evacuate, restore."""
