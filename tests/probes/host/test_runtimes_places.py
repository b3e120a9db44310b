"""Where the configurations of container runtimes are, and how much of them is read."""

import pytest

from nodetopo.probes.host.processes import Process
from nodetopo.probes.host.runtimes import read_containerd, runtime_configs
from tests.probes.host.host_parts import HostTree, files_of

MAIN = "etc/containerd/config.toml"
V3 = "plugins.'io.containerd.cri.v1.runtime'.containerd"


def _file(path: str, *lines: str) -> str:
    place, _, name = path.rpartition("/")
    return f"{place}/\n  {name} |\n" + "".join(f"    |{line}\n" for line in lines)


def _containerd(*words: str) -> Process:
    return Process(pid=1, name="containerd", arguments=words)


@pytest.mark.parametrize(
    "path",
    [
        MAIN,
        "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        "var/snap/microk8s/current/args/containerd.toml",
        "run/k0s/containerd-cri.toml",
        "etc/cri/containerd.toml",
        "etc/crio/crio.conf",
    ],
)
def test_the_usual_places_are_known(path: str, host_tree: HostTree) -> None:
    found = runtime_configs(files_of(host_tree(_file(path, "version = 2"))), None)
    assert [config.path for config in found or ()] == [f"/{path}"]


def test_a_running_containerd_without_a_name_leaves_other_places_out(host_tree: HostTree) -> None:
    k3s = _file("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2")
    files = files_of(host_tree(_file(MAIN, "version = 2") + k3s))
    found = runtime_configs(files, [_containerd()])
    assert [config.path for config in found or ()] == [f"/{MAIN}"]


def test_a_file_that_two_programs_name_is_one_configuration(host_tree: HostTree) -> None:
    found = runtime_configs(
        files_of(host_tree(_file(MAIN, "version = 2"))), [_containerd(), _containerd()]
    )
    assert [config.path for config in found or ()] == [f"/{MAIN}"]


def test_a_relative_name_is_not_guessed_at(host_tree: HostTree) -> None:
    files = files_of(host_tree(_file("x/c.toml", "version = 2")))
    assert runtime_configs(files, [_containerd("-c", "x/c.toml")]) is None


def test_words_after_the_name_are_no_part_of_it(host_tree: HostTree) -> None:
    files = files_of(host_tree(_file("x/c.toml", "version = 2")))
    found = runtime_configs(files, [_containerd("-c", "/x/c.toml", "--root", "/r")])
    assert [config.path for config in found or ()] == ["/x/c.toml"]


@pytest.mark.parametrize("value", ["3", '""', '"/gone.json"', '"/large.json"'])
def test_a_specification_that_cannot_be_read_states_no_limit(
    value: str, host_tree: HostTree
) -> None:
    lines = ("version = 3", f"[{V3}.runtimes.runc]", f"base_runtime_spec = {value}")
    root = host_tree(_file(MAIN, *lines))
    rlimits = '{"process": {"rlimits": [{"type": "RLIMIT_MEMLOCK", "soft": 1}]}}'
    (root / "large.json").write_text(rlimits + " " * (1 << 20))
    found = read_containerd(files_of(root), MAIN)
    assert found is not None
    assert found.memlock_bytes is None


def test_the_number_of_imported_files_is_bounded(host_tree: HostTree) -> None:
    root = host_tree(_file(MAIN, "version = 3", 'imports = ["/d/*.toml"]'))
    (root / "d").mkdir()
    for at in range(64):
        (root / f"d/{at:02}.toml").write_text(f"[{V3}]\ndefault_runtime_name = 'r{at}'\n")
    found = read_containerd(files_of(root), MAIN)
    assert found is not None
    assert found.default_runtime == "r62"  # the main file is the first of 64


def test_imports_from_a_directory_that_is_not_there_are_none(host_tree: HostTree) -> None:
    files = files_of(host_tree(_file(MAIN, "version = 3", 'imports = ["/gone/*.toml"]')))
    assert read_containerd(files, MAIN) is not None
    assert files.issues == ()


def test_the_newest_section_counts_last_and_a_value_replaces_a_table(host_tree: HostTree) -> None:
    lines = (
        "version = 3",
        "[plugins.'io.containerd.grpc.v1.cri'.containerd]",
        'default_runtime_name = "old"',
        "runtimes.old = {}",
        f"[{V3}]",
        'default_runtime_name = "new"',
        "runtimes = 3",
    )
    found = read_containerd(files_of(host_tree(_file(MAIN, *lines))), MAIN)
    assert found is not None
    assert (found.default_runtime, found.nvidia_runtimes) == ("new", ())


def test_a_runtime_may_name_its_program_by_a_path(host_tree: HostTree) -> None:
    lines = (f"[{V3}.runtimes.gpu]", 'runtime_path = "/usr/bin/nvidia-container-runtime"')
    found = read_containerd(files_of(host_tree(_file(MAIN, "version = 3", *lines))), MAIN)
    assert found is not None
    assert found.nvidia_runtimes == ("gpu",)
