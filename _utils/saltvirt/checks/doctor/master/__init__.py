"""The master's side of ``virt.doctor``: its own facts, all judgements, and its mends."""
