"""The master's side of seeding: keys that hosts submit, and the minion for guests."""
