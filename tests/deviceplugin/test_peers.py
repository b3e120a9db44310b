"""Who may call us, as the kernel says it."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from structlog.testing import capture_logs

from nodetopo.deviceplugin.peers import Peers, trusted_users

OWN = os.geteuid()
NOBODY = frozenset[int]()


@contextmanager
def connected(name: str = "a.sock") -> Iterator[tuple[Path, socket.socket, socket.socket]]:
    """Yield the path of a socket and both ends of a connection to it."""
    with TemporaryDirectory(prefix="nodetopo-") as directory:
        path = Path(directory) / name
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as client:
            listening.bind(str(path))
            listening.listen()
            client.connect(str(path))
            client.settimeout(60)
            accepted, _ = listening.accept()
            with accepted:
                yield path, client, accepted


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def is_open(client: socket.socket) -> bool:
    """Tell whether nobody has hung up."""
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    finally:
        client.settimeout(60)


def test_our_own_user_and_root_are_trusted() -> None:
    assert {0, OWN} <= trusted_users()
    with connected() as (path, client, _):
        assert Peers(path).are_trusted()
        assert is_open(client)


def test_a_foreign_user_is_hung_up_on_and_others_are_not() -> None:
    with connected() as (path, client, _), connected() as (_, other, _):
        assert not Peers(path, NOBODY).are_trusted()
        assert not is_open(client)
        assert is_open(other)


def test_a_socket_whose_file_was_renamed_is_still_known() -> None:
    with connected() as (path, client, _):
        path.rename(path.with_name("b.sock"))
        assert not Peers(path, NOBODY).are_trusted()
        assert not is_open(client)


def test_a_foreign_user_is_reported_once() -> None:
    with connected() as (path, _, _), capture_logs() as logs:
        peers = Peers(path, NOBODY)
        peers.are_trusted()
        peers.are_trusted()
    assert [(line["event"], line["user"]) for line in logs] == [("peer refused", OWN)]


def test_looking_leaves_no_descriptor_behind() -> None:
    with connected() as (path, _, _):
        peers = Peers(path)
        before = open_descriptors()
        for _ in range(20):
            peers.are_trusted()
        assert open_descriptors() == before


def test_without_the_kernels_list_the_mode_of_the_file_decides(tmp_path: Path) -> None:
    with connected() as (path, client, _):
        assert Peers(path, NOBODY, descriptors=tmp_path / "none").are_trusted()
        assert is_open(client)


@pytest.mark.parametrize(
    ("uid_map", "is_trusted"),
    [
        ("         0          0 4294967295\n", False),
        ("         0     100000      65536\n", True),
        ("         0          0 1000\n      1000    101000 64536\n", True),
    ],
)
def test_in_a_user_namespace_the_hosts_root_is_the_overflow_user(
    tmp_path: Path, uid_map: str, is_trusted: bool
) -> None:
    (tmp_path / "uid_map").write_text(uid_map)
    (tmp_path / "overflowuid").write_text("65533\n")
    users = trusted_users(tmp_path / "uid_map", tmp_path / "overflowuid")
    assert users == {0, OWN} | ({65533} if is_trusted else set())


def test_where_the_kernel_says_nothing_of_users_root_and_our_own_are_trusted(
    tmp_path: Path,
) -> None:
    assert trusted_users(tmp_path / "none", tmp_path / "none") == {0, OWN}
