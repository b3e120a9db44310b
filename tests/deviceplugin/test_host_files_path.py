from pathlib import Path

import pytest

from nodetopo.deviceplugin.host_files import resolved, seen
from tests.deviceplugin.driver_tree import link, put


@pytest.fixture
def host(tmp_path: Path) -> Path:
    put(tmp_path, "/run/lib/libcuda.so.580")
    put(tmp_path, "/run/socket")
    link(tmp_path, "/var/run", "/run")
    link(tmp_path, "/var/lib", "../run/lib")
    link(tmp_path, "/run/lib/libcuda.so.1", "libcuda.so.580")
    link(tmp_path, "/round", "/round")
    link(tmp_path, "/up", "../../../../etc/passwd")
    link(tmp_path, "/nowhere", "/run/none")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/run/socket", "/run/socket"),
        ("/var/run/socket", "/run/socket"),  # over an absolute link, which stays inside
        ("/var/lib/libcuda.so.1", "/run/lib/libcuda.so.580"),
        ("/run/lib/../socket", "/run/socket"),
        ("/", "/"),
        ("/up", None),  # not this machine's own file
        ("/round", None),
        ("/nowhere", None),
        ("/run/none", None),
    ],
)
def test_links_are_followed_as_on_the_host(host: Path, path: str, found: str | None) -> None:
    assert resolved(host, path) == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/var/run/cdi", "run/cdi"),  # which is still to be made
        ("/var/run/cdi/more", "run/cdi/more"),
        ("/round/cdi", "round/cdi"),
    ],
)
def test_a_path_that_is_not_there_yet_is_the_hosts_too(host: Path, path: str, found: str) -> None:
    assert seen(host, Path(path)) == host / found
