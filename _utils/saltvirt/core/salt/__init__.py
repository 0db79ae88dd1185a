"""What depends on Salt: its releases, its loader, its users, a call's context."""
