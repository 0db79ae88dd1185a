"""What the execution modules and states of a hypervisor share."""
