import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from nodetopo.deviceplugin.sockets import (
    check_path_lengths,
    endpoint_name,
    identity,
    instances,
    is_deleted_directory,
    is_listening,
    new_instance,
    remove_leftovers,
)
from nodetopo.errors import InputError

RESOURCE = "nvidia.com/gpu"


def left_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


INSTANCE = "1-abcde"


def test_no_name_is_used_twice() -> None:
    names = {endpoint_name(RESOURCE, Path("/x"), INSTANCE) for _ in range(100)}
    assert len(names) == 100
    assert new_instance() != new_instance()


def test_the_name_states_the_resource_and_the_process() -> None:
    name = endpoint_name(RESOURCE, Path("/x"), new_instance())
    assert name.startswith(f"nodetopo-gpu-{os.getpid()}-")


def test_sockets_of_one_instance_belong_together(socket_dir: Path) -> None:
    names = ["nodetopo-gpu-1-aaaaa001.sock", ".nodetopo-gpu-1-aaaaa002.sock"]
    names += ["nodetopo-gpu-1-bbbbb001.sock", "nodetopo-mig-1g.5gb-1-ccccc001.sock", "other.sock"]
    with ExitStack() as stack:
        for name in names:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(socket_dir / name))
            server.listen()
        found = instances(RESOURCE, socket_dir)
    assert {it: len(paths) for it, paths in found.items()} == {"1-aaaaa": 2, "1-bbbbb": 1}


def test_a_directory_too_long_for_a_socket_is_refused_with_the_cure() -> None:
    with pytest.raises(InputError, match="a unix socket may have 107 — choose a shorter"):
        check_path_lengths(RESOURCE, [Path("/" + "x" * 90)])


def test_the_kubelets_own_directory_is_short_enough() -> None:
    check_path_lengths("nvidia.com/mig-1g.10gb", [Path("/var/lib/kubelet/device-plugins")])


def test_a_socket_made_anew_has_another_identity(socket_dir: Path) -> None:
    path = socket_dir / "kubelet.sock"
    left_behind(path)
    before = identity(path)
    path.unlink()
    left_behind(path)
    assert identity(path) != before


def test_a_missing_socket_has_no_identity(socket_dir: Path) -> None:
    assert identity(socket_dir / "no/kubelet.sock") is None


def test_a_socket_whose_process_ended_is_not_listening(socket_dir: Path) -> None:
    left_behind(socket_dir / "a.sock")
    assert not is_listening(socket_dir / "a.sock")


def test_leftovers_are_our_dead_sockets_of_this_resource_alone(socket_dir: Path) -> None:
    for name in (
        "nodetopo-gpu-1-0000000a.sock",
        "nodetopo-gpu-x-1-0000000a.sock",
        "nvidia-gpu.sock",
    ):
        left_behind(socket_dir / name)
    (socket_dir / "nodetopo-gpu-2-0000000a.sock").touch()
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(socket_dir / "nodetopo-gpu-3-0000000a.sock"))
        living.listen()
        removed = remove_leftovers(RESOURCE, socket_dir)
    assert removed == ("nodetopo-gpu-1-0000000a.sock",)
    assert not (socket_dir / "nodetopo-gpu-1-0000000a.sock").exists()


def test_a_directory_deleted_under_its_mount_differs_from_a_missing_one(tmp_path: Path) -> None:
    directory = tmp_path / "device-plugins"
    directory.mkdir()
    held = os.open(directory, os.O_RDONLY)
    through_mount = Path(f"/proc/self/fd/{held}")
    try:
        before = is_deleted_directory(through_mount)
        directory.rmdir()
        after = is_deleted_directory(through_mount)
    finally:
        os.close(held)
    assert (before, after, is_deleted_directory(directory)) == (False, True, False)


def test_a_name_that_is_too_long_for_the_directory_is_a_digest() -> None:
    directory = Path("/" + "d" * 66)
    names = {
        endpoint_name(f"{domain}/hca_shared_devices_a", directory, INSTANCE).rsplit("-", 2)[0]
        for domain in ("rdma", "nvidia.com", "rdma")
    }
    assert len(names) == 2
    assert all(len(name) == len("nodetopo-") + 6 for name in names)
    check_path_lengths("rdma/hca_shared_devices_a", [directory])
    assert endpoint_name("rdma/hca_shared_devices_a", Path("/x"), INSTANCE).startswith(
        "nodetopo-hca_shared_devices_a-"
    )
