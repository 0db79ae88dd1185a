"""The appliance's user in the tests' own root, where no formula makes it."""

import pwd
import subprocess

from saltvirt.seeding.offline import lending


def there():
    """Return the user, who is made where the root has none; it is gone with the root."""
    try:
        pwd.getpwnam(lending.USER)
    except KeyError:
        argv = ["useradd", "--system", "--user-group", "--shell", "/usr/sbin/nologin", lending.USER]
        # 9: another process of the tests was first.
        assert subprocess.run(argv, check=False).returncode in (0, 9)
    return lending.accounts()[0]
