from pathlib import Path

import pytest

from agent.deviceplugin.cdi_spec import (
    LIBRARY_DIRECTORIES,
    DriverFiles,
    HostPath,
    driver_files,
    has_program,
)
from tests.deviceplugin.driver_tree import UBUNTU, VERSION, add_socket, install, link, put


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


@pytest.mark.parametrize("directory", LIBRARY_DIRECTORIES)
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
    assert driver_files(tmp_path, VERSION) == DriverFiles()
