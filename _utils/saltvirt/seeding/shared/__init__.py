"""What master and hosts share of seeding."""
