"""A VM's build on its host: gather facts, decide a plan, execute it."""
