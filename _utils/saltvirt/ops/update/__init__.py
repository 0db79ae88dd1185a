"""Change a VM: parse the request, plan the new definition and live changes, execute."""
