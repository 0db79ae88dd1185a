"""The master's side: find the VM, then ask its host."""
