"""The POSIX shell scripts that run in the guest, once, at its first boot."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from saltvirt.seeding.shared import minionpackages

SECRET_BYTES = 64 * 1024
BLOCK = 2048

# The private key follows the ISO's last block. The script reads it, then wipes it from the disk,
# and so from the host, too.
_BEGIN = """\
set -eu
pki=/etc/salt/pki/minion
umask 077
"""
_TAKE_KEY = """\
dev=$(blkid -L {label} 2>/dev/null || findfs LABEL={label})
mkdir -p $pki /etc/salt/minion.d
dd if=$dev bs={block} skip={first} count={count} 2>/dev/null | tr -d '\\000' >$pki/minion.pem.new
if [ -s $pki/minion.pem.new ]; then
    chmod 400 $pki/minion.pem.new
    mv -f $pki/minion.pem.new $pki/minion.pem
    sync
    dd if=/dev/zero of=$dev bs={block} seek={first} count={count} conv=notrunc,fsync 2>/dev/null
else
    rm -f $pki/minion.pem.new
fi
"""
# If this runs again, after `cloud-init clean` or an interruption, the guest keeps its own key, as
# the seed's copy may be wiped. So the guest gets its id before it takes its key.
_IF_ANOTHER = """\
if [ "$(cat /etc/salt/minion_id 2>/dev/null)" != {id} ]; then
{forget}
mkdir -p /etc/salt
rm -f /etc/salt/minion_id
printf '%s\\n' {id} >/etc/salt/minion_id
fi
"""
# A key of another minion, which all VMs of its image would share.
_FORGET_KEY = """\
rm -f "$pki/minion.pem" "$pki/minion.pub"
"""
# Identity of another guest on this disk; removed before the network is up and the minion starts.
# The machine id decides which address the guest leases.
_FORGET = """\
rm -f $pki/minion.pem $pki/minion.pub /etc/machine-id /var/lib/dbus/machine-id
if command -v systemd-machine-id-setup >/dev/null 2>&1; then
    systemd-machine-id-setup >/dev/null 2>&1 || true
fi
[ -e /etc/machine-id ] || : >/etc/machine-id
"""
# Salt reads minion.d by name, and the last file wins: an image may have an id.conf or a master.conf
# of its own.
_IDENTITY = """\
umask 022
mkdir -p /etc/salt/minion.d
rm -f /etc/salt/minion_id
printf '%s\\n' {id} >/etc/salt/minion_id
printf '%s' {config} >/etc/salt/minion.d/zz-salt-virt.conf
chmod 640 /etc/salt/minion.d/zz-salt-virt.conf
"""
_START = """\
if command -v salt-minion >/dev/null 2>&1 && command -v systemctl >/dev/null 2>&1; then
    systemctl enable --no-reload salt-minion >/dev/null 2>&1 || true
    systemctl restart --no-block salt-minion
fi
"""
_INSTALL = """\
if ! command -v salt-minion >/dev/null 2>&1; then
    if command -v apt-get >/dev/null 2>&1; then
        apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy salt-minion
    elif command -v dnf >/dev/null 2>&1; then dnf -qy install salt-minion
    elif command -v zypper >/dev/null 2>&1; then zypper -nq install salt-minion
    elif command -v pacman >/dev/null 2>&1; then pacman -Sy --noconfirm salt
    fi
    if command -v salt-minion >/dev/null 2>&1; then
        systemctl enable --now salt-minion
    else
        echo '{no_minion}' >/dev/console
    fi
fi
"""

# cloud-init uses one of two lists: the user data's bootcmd replaces the image's. As in cloud-init,
# the last file with a bootcmd counts. Before 24.1, --file precedes the subcommand.
_IMAGE_BOOTCMD = """\
found=
for file in /etc/cloud/cloud.cfg /etc/cloud/cloud.cfg.d/*.cfg; do
    if grep -q '^bootcmd[[:space:]]*:' "$file" 2>/dev/null; then found=$file; fi
done
[ -n "$found" ] || exit 0
if cloud-init single --help 2>/dev/null | grep -q -e --file; then
    exec cloud-init single --name bootcmd --frequency always --file "$found"
fi
exec cloud-init --file "$found" single --name bootcmd --frequency always
"""

# cloud-init has written the network's files by now, but no network is up. ifupdown and
# NetworkManager accept a gateway outside the addresses' networks. For netplan, cloud-init marks it
# on-link from 23.1 on, and for systemd-networkd later still.
_NETPLAN = r"""for file in /etc/netplan/*.yaml; do
    [ -e "$file" ] && sed -i {commands} "$file"
done
"""
# A section has one route, and cloud-init before 23.1 writes both families' gateways into one.
_NETWORKD = r"""for file in /etc/systemd/network/*cloud-init*.network; do
    [ -e "$file" ] || continue
    awk -v gateways={gateways} '
        function is_outside() {{
            return /^Gateway=/ && index(" " gateways " ", " " substr($0, 9) " ")
        }}
        is_open && !/^GatewayOnLink=/ {{ print "GatewayOnLink=yes" }}
        was_gateway && /^Gateway=/ {{ print "\n[Route]" }}
        {{ print; is_open = is_outside(); was_gateway = /^Gateway/ }}
        END {{ if (is_open) print "GatewayOnLink=yes" }}
    ' "$file" >"$file.new" && cat "$file.new" >"$file"
    rm -f "$file.new"
done
"""
_APPLY = """\
if command -v netplan >/dev/null 2>&1; then netplan generate; fi
"""


def _write(path: str, text: str, mode: str) -> str:
    quoted_text = shlex.quote(text)
    return f"printf '%s' {quoted_text} >{path}\nchmod {mode} {path}\n"


def first_boot(
    minion_id: str,
    config_text: str,
    public_key: str | None,
    master_key: str | None,
    label: str,
    first_block: int,
    *,
    is_another: bool = False,
) -> str:
    """
    Return the script that takes the identity over; it must run before the minion starts.

    is_another
        First remove the identity of another guest that had this disk. Defaults to False.
    """
    parts = [
        _BEGIN,
        _IF_ANOTHER.format(
            id=shlex.quote(minion_id), forget=_FORGET if is_another else _FORGET_KEY
        ),
        _TAKE_KEY.format(label=label, block=BLOCK, first=first_block, count=SECRET_BYTES // BLOCK),
    ]
    if public_key:
        parts.append(_write("$pki/minion.pub", public_key, "644"))
    if master_key:
        parts.append(_write("$pki/minion_master.pub", master_key, "644"))
    parts.append(_IDENTITY.format(id=shlex.quote(minion_id), config=shlex.quote(config_text)))
    parts.append(_START)
    return "".join(parts)


def gateways_on_link(nics: Iterable[Sequence[str]]) -> str:
    """
    Return the script that lets a guest reach gateways outside its networks.

    nics
        Such gateways, by NIC.
    """
    parts = [part for gateways in nics for part in _on_link(gateways)]
    return "".join(["set -u\n", *parts, _APPLY])


def _on_link(gateways: Sequence[str]) -> Iterator[str]:
    patterns = [gateway.replace(".", "[.]") for gateway in gateways]
    routes = ", ".join(
        f'{{to: "{"::/0" if ":" in gateway else "0.0.0.0/0"}", via: "{gateway}", on-link: true}}'
        for gateway in gateways
    )
    lines = [
        rf"^\( *\)gateway{6 if ':' in gateway else 4}: *[\"']*{pattern}[\"']* *$"
        for gateway, pattern in zip(gateways, patterns, strict=True)
    ]
    # A port has one list of all its routes.
    commands = [rf"s#{lines[0]}#\1routes: [{routes}]#", *(f"\\#{line}#d" for line in lines[1:])]
    yield _NETPLAN.format(commands=" ".join(f"-e {shlex.quote(command)}" for command in commands))
    yield _NETWORKD.format(gateways=shlex.quote(" ".join(gateways)))


def image_bootcmd() -> str:
    """Return the script that runs the ``bootcmd`` of the image's own configuration, if any."""
    return _IMAGE_BOOTCMD


def install() -> str:
    """Return the script that installs a minion with the guest's own package manager."""
    return "set -u\n" + _INSTALL.format(no_minion=minionpackages.NO_MINION)
