"""The lab: one Salt master and N hypervisors out of namespaces on one machine.

Only the standard library is imported here: the lab installs everything else.
"""
