"""Salt as its packages lay it out: a Python of its own in /opt/saltstack/salt, units, user salt.

The Python is Debian 12's, copied with its library, so that both lines of Salt run on every
release of the lab; no module of the distribution is seen by it.
"""

from pathlib import Path

from labkit import layers, pythons, roots
from labkit.settings import SALTS

_RECIPE = """
top=/opt/saltstack/salt
mkdir -p $top/bin $top/include
cp /usr/bin/python3.11 $top/bin/
ln -s python3.11 $top/bin/python3
cp -a /usr/lib/python3.11 $top/lib-python && mkdir -p $top/lib && mv $top/lib-python $top/lib/python3.11
rm -rf $top/lib/python3.11/EXTERNALLY-MANAGED $top/lib/python3.11/config-3.11-*
cp -a /usr/include/python3.11 $top/include/
cp -a /usr/include/*-linux-gnu/python3.11/pyconfig.h $top/include/python3.11/
python3 -m venv /tmp/venv
/tmp/venv/bin/pip --python $top/bin/python3 install -q --no-compile --no-index -f /run/lab/wheels pip 'setuptools<80' wheel
INSTALL 'SALT'
$top/bin/python3 -m compileall -j 2 -q $top/lib/python3.11 $top/local >/dev/null || true
for name in salt salt-call salt-cp salt-key salt-master salt-minion salt-run salt-syndic; do
    cat >$top/$name <<X
#!$top/bin/python3
import sys
from salt.scripts import $(echo $name | sed 's/-/_/;s/^salt$/salt_main/')
if __name__ == "__main__":
    sys.exit($(echo $name | sed 's/-/_/;s/^salt$/salt_main/')())
X
    chmod 755 $top/$name
    ln -s $top/$name /usr/bin/$name
done
units=/usr/lib/systemd/system
mkdir -p $units /usr/lib/tmpfiles.d
for name in master minion; do
    cat >$units/salt-$name.service <<X
[Unit]
Description=The Salt $name
After=network.target

[Service]
Type=notify
NotifyAccess=all
LimitNOFILE=100000
ExecStart=/usr/bin/salt-$name
KillMode=KILL_MODE_$name

[Install]
WantedBy=multi-user.target
X
done
sed -i s/KILL_MODE_minion/process/ $units/salt-minion.service
sed -i s/KILL_MODE_master/control-group/ $units/salt-master.service
cat >/usr/lib/tmpfiles.d/salt.conf <<X
d /run/salt 0755 root root
d /run/salt/master 0750 salt salt
d /var/log/salt 0755 root root
f /var/log/salt/master 0640 salt salt
f /var/log/salt/key 0640 salt salt
d /var/cache/salt/master 0750 salt salt
d /etc/salt/pki/master 0700 salt salt
d /etc/salt/master.d 0750 salt salt
X
rm -rf /tmp/venv $HOME/.cache
"""  # noqa: E501


def layer(line):
    """Return the layer with one line of Salt, to be put on any root."""
    wheels = pythons.wheels(line)
    install = pythons.INSTALL.format(python="$top/bin/python3")
    recipe = _RECIPE.replace("INSTALL", install).replace("SALT", SALTS[line])
    return layers.add(
        f"salt-{line}",
        recipe,
        roots.workshop(),
        f"Salt {line} with its Python",
        inputs=[wheels.parent.name],
        READ_ONLY=f"{wheels}:/run/lab/wheels",
    )[0]


def packages(line):
    """Return the folder of the Python packages of one line of Salt."""
    found = sorted((layer(line) / "opt/saltstack/salt").rglob("salt/version.py"))
    return Path(found[0]).parents[1]
