"""
A stand-in for libvirt: what ``saltvirt.libvirt`` calls, on domains that are kept in a file.

Nothing runs in it. What it does not know it refuses as a driver of libvirt does, with
VIR_ERR_NO_SUPPORT. ``tests/swarm/test_standin.py`` holds it to libvirt's own answers.
"""
