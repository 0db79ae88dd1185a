"""Commands of others that the pages name in a sentence or a table, and that no test runs: why."""

LOOKS = "it only shows something"
INTERNET = "it needs the internet"
RED_HAT = "it is for RHEL, which no host of the tests has"
SELINUX = "the machines of the tests have no SELinux"
TAKES_APART = "it takes apart a host, or a master, that other tests use"
TYPES = "somebody has to type in it"
GUEST = "it needs a guest of a distribution's image, which few tests boot"

WHY = {
    "apt-get autoremove": TAKES_APART,
    "apt-get download salt-common salt-minion": INTERNET,
    "apt-get remove python3-libvirt python3-pycdlib python3-pyroute2": TAKES_APART,
    "dnf download salt salt-minion": RED_HAT,
    "git pull": INTERNET,
    "make compat": "it is what runs tests",
    "make lint": "it is what runs tests",
    "make nightly": "it is what runs tests",
    "make unit": "it is what runs tests",
    "nft flush": TAKES_APART,
    "salt network.default_route": LOOKS,
    "salt saltutil.runner": "the page says not to use it",
    "salt shadow.set_password": GUEST,
    "salt ssh.set_auth_key": GUEST,
    "salt sys.doc": LOOKS,
    "salt-pip install .": INTERNET,
    "salt-pip install .[hypervisor]": INTERNET,
    "salt-pip install /srv/wheels libvirt-python pycdlib pyroute2": INTERNET,
    "salt-pip install pygit2": INTERNET,
    "salt-pip uninstall saltext-virt": TAKES_APART,
    "salt pip.uninstall": TAKES_APART,
    "salt-pip install saltext-virt": "another product; the tests install its wheel",
    "salt-pip uninstall saltvirt": TAKES_APART,
    "salt-pip wheel .": INTERNET,
    "salt-run auth.mk_token": "the swarm's cells use a password",
    "salt-run jobs.active": LOOKS,
    "salt-run saltutil.sync_clouds": "sync_all, which is run, does the same and more",
    "semanage fcontext": SELINUX,
    "systemctl disable libvirtd-tls.socket": TAKES_APART,
    "systemctl status libvirtd": LOOKS,
    "ufw route": "the hosts of the tests have no ufw",
    "virsh console": TYPES,
    "virsh domrename": "it is what libvirt's own users do; the tests rename by other means",
    "virsh edit": TYPES,
    "virsh net-autostart": TAKES_APART,
    "zypper /tmp/minion install salt-minion": "it is for SUSE, which no host of the tests has",
}
