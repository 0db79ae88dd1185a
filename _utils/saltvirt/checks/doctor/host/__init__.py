"""The facts that a host reports to ``virt.doctor``, and the mends on a host."""
