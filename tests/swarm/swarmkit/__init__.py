"""
A swarm: many light minions on one machine, real Salt peers on a real master's wire.

Each answers by this project's own modules; below ``kvm/`` they have a stand-in for libvirt.
"""
