"""The firewall of a hypervisor: its rules, in the program that this host has for them."""
