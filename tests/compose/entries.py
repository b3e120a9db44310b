"""Files and links of a composed tree."""

from os.path import relpath

from nodetopo.model.pci import PciPath
from nodetopo.tools.capture.archive import Entry


def file(path: str, text: object) -> Entry:
    """Return a file of text, with the newline that every sysfs file ends in."""
    return Entry(path=path, content=f"{text}\n".encode())


def link(path: str, to: str) -> Entry:
    """Return a symbolic link, relative as sysfs writes them."""
    return Entry(path=path, target=relpath(to, path.rpartition("/")[0]))


def real_path(path: PciPath) -> str:
    """Return where the kernel keeps the function of *path*."""
    assert path.root is not None
    return "/".join(["sys/devices", path.root, *map(str, path.hops)])
