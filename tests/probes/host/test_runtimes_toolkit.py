"""NVIDIA's container toolkit."""

import pytest

from nodetopo.model.host import ContainerToolkit
from nodetopo.probes.host.runtimes import read_toolkit
from tests.probes.host.host_parts import HostTree, files_of

PACKAGED = "etc/nvidia-container-runtime/"
OPERATOR = "usr/local/nvidia/toolkit/.config/nvidia-container-runtime/"


def _config(place: str, *lines: str) -> str:
    return f"{place}\n  config.toml |\n" + "".join(f"    |{line}\n" for line in lines)


def test_settings_mode_and_version_are_read(host_tree: HostTree) -> None:
    tree = _config(
        PACKAGED,
        "accept-nvidia-visible-devices-envvar-when-unprivileged = false",
        "accept-nvidia-visible-devices-as-volume-mounts = true",
        "[nvidia-container-runtime]",
        'mode = "cdi"',
    )
    tree += "usr/lib64/\n  libnvidia-container.so.1 -> libnvidia-container.so.1.17.8\n"
    assert read_toolkit(files_of(host_tree(tree))) == ContainerToolkit(
        path=f"/{PACKAGED}config.toml",
        env_when_unprivileged=False,
        volume_mounts=True,
        mode="cdi",
        version="1.17.8",
    )


def test_the_operators_own_file_comes_first(host_tree: HostTree) -> None:
    found = read_toolkit(files_of(host_tree(_config(PACKAGED) + _config(OPERATOR))))
    assert found == ContainerToolkit(path=f"/{OPERATOR}config.toml")


@pytest.mark.parametrize("target", ["libnvidia-container.so.2", "x.so.1.17.8", "../1.17.8"])
def test_a_library_of_another_name_has_no_version(target: str, host_tree: HostTree) -> None:
    tree = f"usr/lib64/\n  libnvidia-container.so.1 -> {target}\n"
    found = read_toolkit(files_of(host_tree(_config(PACKAGED) + tree)))
    assert found is not None
    assert found.version is None


def test_values_of_another_type_are_not_stated(host_tree: HostTree) -> None:
    tree = _config(
        PACKAGED,
        'accept-nvidia-visible-devices-as-volume-mounts = "yes"',
        "nvidia-container-runtime = 3",
    )
    assert read_toolkit(files_of(host_tree(tree))) == ContainerToolkit(
        path=f"/{PACKAGED}config.toml"
    )


def test_without_a_file_the_toolkit_is_unknown(host_tree: HostTree) -> None:
    assert read_toolkit(files_of(host_tree("etc/\n"))) is None


def test_a_file_that_is_no_toml_is_an_issue(host_tree: HostTree) -> None:
    files = files_of(host_tree(_config(PACKAGED, "mode")))
    assert read_toolkit(files) is None
    assert len(files.issues) == 1


@pytest.mark.parametrize(
    ("config", "place", "version"),
    [
        (OPERATOR, "usr/local/nvidia/toolkit", "1.18.2"),
        (OPERATOR, "usr/lib64", None),
        (PACKAGED, "usr/lib/x86_64-linux-gnu", "1.18.2"),
        (PACKAGED, "usr/lib/aarch64-linux-gnu", "1.18.2"),
        (PACKAGED, "usr/lib64", "1.18.2"),
        (PACKAGED, "usr/local/nvidia/toolkit", None),
    ],
)
def test_the_version_is_that_of_the_toolkit_whose_settings_hold(
    config: str, place: str, version: str | None, host_tree: HostTree
) -> None:
    tree = f"{place}/\n  libnvidia-container.so.1 -> libnvidia-container.so.1.18.2\n"
    found = read_toolkit(files_of(host_tree(_config(config) + tree)))
    assert found is not None
    assert found.version == version


def test_a_mode_that_is_no_text_is_not_stated(host_tree: HostTree) -> None:
    tree = _config(PACKAGED, "[nvidia-container-runtime]", "mode = 3")
    found = read_toolkit(files_of(host_tree(tree)))
    assert found is not None
    assert found.mode is None
