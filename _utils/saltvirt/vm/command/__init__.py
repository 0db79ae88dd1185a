"""Commands on one VM, or on several, wherever they are."""
