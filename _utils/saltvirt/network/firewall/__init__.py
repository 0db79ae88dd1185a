"""The firewall of a hypervisor: its rules, in the program that the host has for them."""
