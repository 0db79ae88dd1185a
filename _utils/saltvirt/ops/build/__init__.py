"""A VM's build on its host: facts, then a plan made of them, then its steps."""
