"""The master's side of ``virt.audit``: its own facts, and all judgements."""
