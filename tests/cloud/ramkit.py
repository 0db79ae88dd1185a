"""Initial RAM disks for Debian's cloud kernel: busybox, modules and programs."""

import re
import shutil
import subprocess
from pathlib import Path


def kernel():
    """Return the path of this machine's cloud kernel."""
    return sorted(Path("/boot").glob("vmlinuz-*-cloud-amd64"))[-1]


def _modules(names):
    """Return the files of modules and of those that they need, in the order of their loading."""
    version = kernel().name.removeprefix("vmlinuz-")
    paths = []
    for name in names:
        argv = ["modprobe", "--set-version", version, "--show-depends", name]
        said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        paths += re.findall(r"^insmod (\S+)", said, re.MULTILINE)
    return list(dict.fromkeys(paths))


def _with_libraries(program):
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    return [program, *re.findall(r"(/\S+) \(0x", said)]


def initrd(folder, init, modules, programs=()):
    """Pack an initial RAM disk below a folder and return its path; ``init`` is a shell script."""
    ram = folder / "ram"
    for part in ("bin", "mod", "proc", "sys", "dev", "root"):
        (ram / part).mkdir(parents=True)
    shutil.copy("/bin/busybox", ram / "bin/busybox")
    for number, path in enumerate(_modules(modules), 10):
        shutil.copy(path, ram / "mod" / f"{number}-{Path(path).name}")
    for program in programs:
        for path in _with_libraries(program):
            inner = ram / path.lstrip("/")
            inner.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, inner)
    (ram / "init").write_text(init)
    (ram / "init").chmod(0o755)
    packed = f"cd {ram} && find . | cpio -o -H newc --quiet | gzip -1 > {folder}/initrd"
    subprocess.run(["sh", "-c", packed], check=True)
    shutil.rmtree(ram)
    return folder / "initrd"
