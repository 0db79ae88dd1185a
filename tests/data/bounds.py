"""What no plan can better: how few hosts VMs need, and how even so many moves can make hosts."""

import math

_STEPS = 40
_GOLDEN = (5**0.5 - 1) / 2


def fewest_hosts(needs, limits):
    """Return how many hosts VMs need at least: ``needs`` and ``limits`` in the same dimensions."""
    return max(
        math.ceil(sum(each) / limit)
        for each, limit in zip(zip(*needs, strict=True), limits, strict=True)
    )


def least_uneven(shares, movable, most):
    """
    Return the least standard deviation that so many moves among equal hosts can lead to.

    shares
        What of each host is in use.
    movable
        For each host, the shares of its VMs.
    most
        How many VMs may move.

    It is Lagrange's dual of a relaxed problem: a host gives away any part of its VMs, the largest
    first, each as the part of a move that it is, and others take in any amounts. Whatever the two
    prices are, the value is no more than what any plan reaches; the best two are sought.
    """
    sizes = [sorted(vms, reverse=True) for vms in movable]
    mean = sum(shares) / len(shares)

    def of_price(price):
        return _highest(lambda level: _dual(shares, sizes, most, price, level), 0.0, 2 * mean)

    squares = _highest(of_price, 0.0, max(shares) ** 2)
    return max(0.0, squares / len(shares) - mean * mean) ** 0.5


def _highest(value, low, high):
    """Return the highest value of a concave function between two arguments."""
    for _step in range(_STEPS):
        third = high - _GOLDEN * (high - low)
        other = low + _GOLDEN * (high - low)
        if value(third) < value(other):
            low = third
        else:
            high = other
    return value((low + high) / 2)


def _dual(shares, sizes, most, price, level):
    """Return the dual's value where a move costs ``price``, and a share ``level`` to take in."""
    low = level / 2
    total = -price * most
    for share, vms in zip(shares, sizes, strict=True):
        left, paid = share, 0.0
        for vm in vms:
            # As long as what is left costs more than giving more of this VM away.
            step = min(vm, left - max(low, (level + price / vm) / 2))
            if step <= 0:
                break
            left, paid = left - step, paid + level * step + price * step / vm
            if step < vm:
                break
        total += paid + (left * left if left >= low else low * low - level * (low - left))
    return total
