from pathlib import Path

import pytest

from nodetopo.deviceplugin.driver_files import (
    LAST_LIBRARY_DIRECTORY,
    LIBRARY_DIRECTORIES,
    DriverFiles,
    HostPath,
    driver_files,
    has_program,
)
from tests.deviceplugin.driver_tree import (
    LIBRARIES,
    UBUNTU,
    VERSION,
    add_socket,
    install,
    know,
    link,
    put,
)
from tests.formats.loader_caches import AARCH64, I386

NVIDIA = "/usr/local/nvidia/lib64"


def same(*paths: str) -> tuple[HostPath, ...]:
    return tuple(HostPath(path, path) for path in paths)


def test_libraries_of_the_driver_are_found_with_the_links_that_lead_to_them(
    tmp_path: Path,
) -> None:
    install(tmp_path)
    for name in ("libc.so.6", "libcuda.so.470.1", "libnvidia-old.so.1"):
        put(tmp_path, f"{UBUNTU}/{name}")
    link(tmp_path, f"{UBUNTU}/libnvidia-ml.so", "libnvidia-ml.so.1")  # a link to a link
    link(tmp_path, f"{UBUNTU}/libc.so", "libc.so.6")
    names = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
    assert driver_files(tmp_path, VERSION) == DriverFiles(
        version=VERSION,
        libraries=same(*(f"{UBUNTU}/{name}.so.{VERSION}" for name in names)),
        links=(
            ("libcuda.so.1", f"{UBUNTU}/libcuda.so"),  # not there: programs open it all the same
            (f"libcuda.so.{VERSION}", f"{UBUNTU}/libcuda.so.1"),
            ("libnvidia-ml.so.1", f"{UBUNTU}/libnvidia-ml.so"),
            (f"libnvidia-ml.so.{VERSION}", f"{UBUNTU}/libnvidia-ml.so.1"),
            (
                f"libnvidia-ptxjitcompiler.so.{VERSION}",
                f"{UBUNTU}/libnvidia-ptxjitcompiler.so.1",
            ),
        ),
        programs=same("/usr/bin/nvidia-smi"),
    )


@pytest.mark.parametrize("directory", [*LIBRARY_DIRECTORIES, LAST_LIBRARY_DIRECTORY])
def test_every_distributions_directory_is_looked_at(tmp_path: Path, directory: str) -> None:
    install(tmp_path, directory)
    found = driver_files(tmp_path, VERSION).libraries
    assert {file.path.rpartition("/")[0] for file in found} == {directory}


def test_a_directory_that_two_names_lead_to_is_taken_once(tmp_path: Path) -> None:
    install(tmp_path, "/usr/lib64")
    link(tmp_path, "/lib64", "usr/lib64")
    assert len(driver_files(tmp_path, VERSION).libraries) == 3


def test_a_library_behind_a_link_is_given_as_the_file_that_it_is(tmp_path: Path) -> None:
    install(tmp_path, "/opt/driver")
    link(tmp_path, "/usr/lib64", "/opt/driver")
    found = driver_files(tmp_path, VERSION).libraries[0]
    name = f"libcuda.so.{VERSION}"
    assert found == HostPath(f"/usr/lib64/{name}", f"/opt/driver/{name}")


def directories(root: Path, machine: str = "x86_64") -> list[str]:
    """Return where the libraries of CUDA are that a container is given."""
    files = driver_files(root, VERSION, machine)
    cuda = (file.path for file in files.libraries if "/libcuda.so." in file.path)
    return [path.rpartition("/")[0] for path in cuda]


def test_a_directory_that_only_the_loaders_cache_knows_is_found(tmp_path: Path) -> None:
    install(tmp_path, NVIDIA)
    put(tmp_path, "/usr/local/nvidia/bin/nvidia-smi", mode=0o755)
    (tmp_path / "usr/bin/nvidia-smi").unlink()
    know(tmp_path, f"{NVIDIA}/libcuda.so.1", f"{NVIDIA}/libnvidia-ml.so.1")
    found = driver_files(tmp_path, VERSION, "x86_64")
    assert found.libraries == same(*(f"{NVIDIA}/{name}.so.{VERSION}" for name in LIBRARIES))
    assert (f"libcuda.so.{VERSION}", f"{NVIDIA}/libcuda.so.1") in found.links
    assert found.programs == same("/usr/local/nvidia/bin/nvidia-smi")


def test_the_loaders_cache_comes_before_the_usual_directories(tmp_path: Path) -> None:
    install(tmp_path, UBUNTU)
    install(tmp_path, NVIDIA)
    know(tmp_path, f"{NVIDIA}/libcuda.so.1")
    assert directories(tmp_path) == [NVIDIA]


@pytest.mark.parametrize("kind", [I386, AARCH64])
def test_a_library_for_another_machine_is_not_taken(tmp_path: Path, kind: int) -> None:
    install(tmp_path, UBUNTU)
    install(tmp_path, NVIDIA)
    know(tmp_path, f"{NVIDIA}/libcuda.so.1", kind=kind)
    assert directories(tmp_path) == [UBUNTU]


@pytest.mark.parametrize(
    "path",
    [
        "/gone/libcuda.so.1",  # ldconfig was not run since
        "/usr/local/cuda/compat/libcuda.so.1",  # of another version
        f"{NVIDIA}/libnvidia-ml.so.1",  # CUDA's is elsewhere
    ],
)
def test_a_cache_without_the_library_of_cuda_leaves_the_usual_directories(
    tmp_path: Path, path: str
) -> None:
    install(tmp_path, UBUNTU)
    install(tmp_path, "/usr/local/cuda/compat", "570.1")
    put(tmp_path, f"{NVIDIA}/libnvidia-ml.so.{VERSION}")
    link(tmp_path, f"{NVIDIA}/libnvidia-ml.so.1", f"libnvidia-ml.so.{VERSION}")
    know(tmp_path, path)
    assert directories(tmp_path) == [UBUNTU]


@pytest.mark.parametrize("damage", ["", "not a cache"])
def test_a_damaged_cache_leaves_the_usual_directories(tmp_path: Path, damage: str) -> None:
    install(tmp_path, UBUNTU)
    put(tmp_path, "/etc/ld.so.cache", damage)
    assert directories(tmp_path) == [UBUNTU]


@pytest.mark.parametrize("target", ["usr/lib", "/usr/lib"])
def test_a_directory_that_is_a_link_in_the_root_is_followed_in_the_root(
    tmp_path: Path, target: str
) -> None:
    install(tmp_path, UBUNTU)
    link(tmp_path, "/lib", target)
    know(tmp_path, "/lib/x86_64-linux-gnu/libcuda.so.1")
    assert directories(tmp_path) == [UBUNTU]
    (tmp_path / "etc/ld.so.cache").unlink()
    assert directories(tmp_path) == [UBUNTU]


def test_an_absolute_link_to_a_library_stays_in_the_root(tmp_path: Path) -> None:
    install(tmp_path, "/opt/driver")
    link(tmp_path, f"{UBUNTU}/libcuda.so.1", "/etc/alternatives/libcuda")
    link(tmp_path, "/etc/alternatives/libcuda", f"/opt/driver/libcuda.so.{VERSION}")
    know(tmp_path, f"{UBUNTU}/libcuda.so.1")
    assert directories(tmp_path) == ["/opt/driver"]


def test_a_link_does_not_lead_out_of_the_root(tmp_path: Path) -> None:
    install(tmp_path / "outside", "/lib64")
    root = tmp_path / "root"
    link(root, "/usr/lib64", "../../outside/lib64")
    know(root, f"/../outside/lib64/libcuda.so.{VERSION}")
    assert driver_files(root, VERSION, "x86_64").libraries == ()


def test_a_driver_in_several_directories_is_found_in_all(tmp_path: Path) -> None:
    """Debian puts what can be chosen among into a directory of its own."""
    current = f"{UBUNTU}/nvidia/current"
    install(tmp_path, current)
    put(tmp_path, f"{UBUNTU}/libnvidia-glcore.so.{VERSION}")
    paths = [*(f"{current}/{name}.so.{VERSION}" for name in LIBRARIES)]
    paths.append(f"{UBUNTU}/libnvidia-glcore.so.{VERSION}")
    assert driver_files(tmp_path, VERSION, "x86_64").libraries == same(*sorted(paths))
    know(tmp_path, f"{current}/libcuda.so.1", f"{UBUNTU}/libnvidia-glcore.so.{VERSION}")
    assert driver_files(tmp_path, VERSION, "x86_64").libraries == same(*sorted(paths))


def test_32_bit_libraries_beside_the_others_are_not_taken(tmp_path: Path) -> None:
    """Red Hat puts them into the directory that is Arch Linux's for 64 bits."""
    install(tmp_path, "/usr/lib64")
    install(tmp_path, "/usr/lib")
    assert directories(tmp_path) == ["/usr/lib64"]


def test_video_libraries_lie_a_directory_deeper(tmp_path: Path) -> None:
    install(tmp_path)
    put(tmp_path, f"{UBUNTU}/vdpau/libvdpau_nvidia.so.{VERSION}")
    paths = [file.path for file in driver_files(tmp_path, VERSION).libraries]
    assert f"{UBUNTU}/vdpau/libvdpau_nvidia.so.{VERSION}" in paths


def test_another_version_has_no_libraries(tmp_path: Path) -> None:
    install(tmp_path)
    assert driver_files(tmp_path, "570.1").libraries == ()


def test_programs_are_executable_files_in_the_first_place_that_has_them(tmp_path: Path) -> None:
    put(tmp_path, "/usr/bin/nvidia-smi", mode=0o755)
    put(tmp_path, "/bin/nvidia-smi", mode=0o755)
    put(tmp_path, "/usr/bin/nvidia-debugdump", mode=0o644)
    put(tmp_path, "/etc/alternatives/mps", mode=0o755)
    link(tmp_path, "/usr/bin/nvidia-cuda-mps-control", "/etc/alternatives/mps")
    assert driver_files(tmp_path, VERSION).programs == (
        HostPath("/usr/bin/nvidia-cuda-mps-control", "/etc/alternatives/mps"),
        HostPath("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
    )
    assert has_program(tmp_path, "/usr/bin/nvidia-cuda-mps-control")
    assert not has_program(tmp_path, "/usr/bin")


def test_sockets_are_found_once_over_the_link_of_var_run(tmp_path: Path) -> None:
    add_socket(tmp_path, "/run/nvidia-persistenced/socket")
    link(tmp_path, "/var/run", "/run")
    put(tmp_path, "/run/nvidia-fabricmanager/socket")  # a file, and no socket
    (tmp_path / "tmp/nvidia-mps").mkdir(parents=True)
    paths = ("/run/nvidia-persistenced/socket", "/tmp/nvidia-mps")
    assert driver_files(tmp_path, VERSION).sockets == same(*paths)


def test_an_old_hosts_sockets_are_found_below_var_run(tmp_path: Path) -> None:
    add_socket(tmp_path, "/var/run/nvidia-persistenced/socket")
    expected = same("/var/run/nvidia-persistenced/socket")
    assert driver_files(tmp_path, VERSION).sockets == expected


def test_a_host_without_a_driver_has_no_files(tmp_path: Path) -> None:
    assert driver_files(tmp_path, VERSION) == DriverFiles(version=VERSION)
