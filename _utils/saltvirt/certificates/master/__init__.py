"""The operator's commands on the CA, and who is a hypervisor."""
