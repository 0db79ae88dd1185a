"""The master's side of ``virt.setup_check``: its own facts, and all judgements."""
