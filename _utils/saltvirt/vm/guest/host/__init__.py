"""A host's side: addresses, console and guest agent."""
