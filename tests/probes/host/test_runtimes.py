"""containerd's and CRI-O's configuration."""

import pytest

from nodetopo.model.host import RuntimeConfig
from nodetopo.probes.host.processes import Process
from nodetopo.probes.host.runtimes import read_containerd, read_crio, read_toolkit, runtime_configs
from tests.probes.host.host_parts import HostTree, files_of

MAIN = "etc/containerd/config.toml"
V2 = 'plugins."io.containerd.grpc.v1.cri"'
V3 = "plugins.'io.containerd.cri.v1.runtime'"
NVIDIA = 'options.BinaryName = "/usr/bin/nvidia-container-runtime"'


def _file(path: str, *lines: str) -> str:
    place, _, name = path.rpartition("/")
    return f"{place}/\n  {name} |\n" + "".join(f"    |{line}\n" for line in lines)


def _containerd(*lines: str) -> str:
    return _file(MAIN, *lines)


@pytest.mark.parametrize(
    ("version", "section"), [(1, "plugins.cri"), (2, V2), (3, V2), (3, V3), (4, V3)]
)
def test_containerds_settings_are_found_in_every_version(
    version: int, section: str, host_tree: HostTree
) -> None:
    tree = _containerd(
        f"version = {version}",
        f"[{section}]",
        "enable_cdi = true",
        f"[{section}.containerd]",
        'default_runtime_name = "nvidia"',
        f"[{section}.containerd.runtimes.nvidia]",
        NVIDIA,
        f"[{section}.containerd.runtimes.runc]",
        'options.BinaryName = "/usr/bin/runc"',
        f"[{section}.containerd.runtimes.nvidia-cdi]",
        'options.BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime.cdi"',
    )
    assert read_containerd(files_of(host_tree(tree)), MAIN) == RuntimeConfig(
        name="containerd",
        path=f"/{MAIN}",
        cdi=True,
        default_runtime="nvidia",
        nvidia_runtimes=("nvidia", "nvidia-cdi"),
    )


@pytest.mark.parametrize(
    ("line", "cdi"),
    [("version = 2", None), ("version = 3", True), ("", None), ('version = "3"', None)],
)
def test_cdi_that_is_not_stated_is_on_since_containerd_2(
    line: str, cdi: bool | None, host_tree: HostTree
) -> None:
    found = read_containerd(files_of(host_tree(_containerd(line))), MAIN)
    assert found is not None
    assert (found.cdi, found.default_runtime) == (cdi, "runc")


@pytest.mark.parametrize(
    ("lines", "is_systemd"),
    [
        ((), None),
        (("runc.options]", "SystemdCgroup = true"), True),
        (("runc.options]", "SystemdCgroup = false"), False),
        (("runc.options]", 'SystemdCgroup = "true"'), None),
        # Containers with GPUs are the NVIDIA runtime's.
        (
            (
                "runc.options]",
                "SystemdCgroup = false",
                f"[{V3}.containerd.runtimes.nvidia.options]",
                'BinaryName = "/usr/bin/nvidia-container-runtime"',
                "SystemdCgroup = true",
            ),
            True,
        ),
    ],
)
def test_containerd_states_who_makes_control_groups(
    lines: tuple[str, ...], is_systemd: bool | None, host_tree: HostTree
) -> None:
    stated = (f"[{V3}.containerd.runtimes.{lines[0]}", *lines[1:]) if lines else ()
    found = read_containerd(files_of(host_tree(_containerd("version = 3", *stated))), MAIN)
    assert found is not None
    assert found.systemd_cgroup is is_systemd


@pytest.mark.parametrize(
    ("line", "is_systemd"),
    [("", True), ('cgroup_manager = "systemd"', True), ('cgroup_manager = "cgroupfs"', False)],
)
def test_crio_leaves_control_groups_to_systemd_by_default(
    line: str, host_tree: HostTree, *, is_systemd: bool
) -> None:
    tree = _file("etc/crio/crio.conf", "[crio.runtime]", line)
    found = read_crio(files_of(host_tree(tree)))
    assert found is not None
    assert found.systemd_cgroup is is_systemd


def test_directories_of_specifications_are_read_of_each_program(host_tree: HostTree) -> None:
    tree = _containerd("version = 3", f"[{V3}]", 'cdi_spec_dirs = ["/opt/cdi", 7]')
    tree += _file("etc/crio/crio.conf", "[crio.runtime]", 'cdi_spec_dirs = ["/etc/cdi"]')
    tree += _file(
        "etc/nvidia-container-runtime/config.toml",
        "[nvidia-container-runtime.modes.cdi]",
        'default-kind = "management.nvidia.com/gpu"',
        'spec-dirs = ["/a", "/b"]',
    )
    files = files_of(host_tree(tree))
    containerd, crio, toolkit = read_containerd(files, MAIN), read_crio(files), read_toolkit(files)
    assert containerd is not None
    assert crio is not None
    assert toolkit is not None
    assert (containerd.cdi_dirs, crio.cdi_dirs) == (("/opt/cdi",), ("/etc/cdi",))
    assert (toolkit.cdi_dirs, toolkit.cdi_kind) == (("/a", "/b"), "management.nvidia.com/gpu")


def _imports(version: int, section: str, *names: str) -> str:
    return (
        _containerd(
            f"version = {version}",
            f"imports = [{', '.join(map(repr, names))}]",
            f"[{section}]",
            "enable_cdi = false",
            f"[{section}.containerd]",
            'default_runtime_name = "nvidia"',
        )
        + _file("etc/containerd/conf.d/10-x.toml", f"[{section}]", "enable_cdi = true")
        + _file("etc/containerd/conf.d/20-x.conf", f"[{section}]", "enable_cdi = false")
    )


@pytest.mark.parametrize("name", ["/etc/containerd/conf.d/*.toml", "conf.d/10-x.toml"])
def test_imports_of_containerd_2_are_merged_key_by_key(name: str, host_tree: HostTree) -> None:
    found = read_containerd(files_of(host_tree(_imports(3, V3, name))), MAIN)
    assert found is not None
    assert (found.cdi, found.default_runtime) == (True, "nvidia")


def test_imports_of_containerd_1_replace_the_whole_section(host_tree: HostTree) -> None:
    found = read_containerd(files_of(host_tree(_imports(2, V2, "conf.d/*.toml"))), MAIN)
    assert found is not None
    assert (found.cdi, found.default_runtime) == (True, "runc")


def test_files_that_import_each_other_end(host_tree: HostTree) -> None:
    tree = _containerd('imports = ["config.toml", "a.toml"]') + _file(
        "etc/containerd/a.toml", 'imports = ["config.toml"]'
    )
    assert read_containerd(files_of(host_tree(tree)), MAIN) is not None


def test_no_import_leads_out_of_the_hosts_root(host_tree: HostTree) -> None:
    root = host_tree(_containerd("version = 2", 'imports = ["../../../../out.toml", 7]'))
    (root.parent / "out.toml").write_text(f"[{V2}]\nenable_cdi = true\n")
    found = read_containerd(files_of(root), MAIN)
    assert found is not None
    assert found.cdi is None


def test_invalid_toml_is_an_issue_and_its_settings_are_unknown(host_tree: HostTree) -> None:
    files = files_of(host_tree(_containerd("version = ")))
    assert read_containerd(files, MAIN) is None
    assert [(issue.subject, issue.reason) for issue in files.issues] == [
        (MAIN, "not TOML: Invalid value (at end of document)")
    ]


@pytest.mark.parametrize(
    ("rlimits", "memlock"),
    [
        ('[{"type": "RLIMIT_MEMLOCK", "soft": 18446744073709551615}]', -1),
        ('[{"type": "RLIMIT_MEMLOCK", "soft": 65536}]', 65536),
        ('[{"type": "RLIMIT_CORE", "soft": 1}, 3]', None),
        ('"none"', None),
    ],
)
def test_limits_of_the_default_runtimes_specification_are_read(
    rlimits: str, memlock: int | None, host_tree: HostTree
) -> None:
    tree = _containerd(
        "version = 2",
        f"[{V2}.containerd.runtimes.runc]",
        'base_runtime_spec = "/etc/containerd/base.json"',
    ) + _file("etc/containerd/base.json", '{"process": {"rlimits": ' + rlimits + "}}")
    # The archive would name the directory twice.
    tree = tree.replace("etc/containerd/\n  base.json", "  base.json")
    found = read_containerd(files_of(host_tree(tree)), MAIN)
    assert found is not None
    assert (found.memlock_bytes, found.open_files) == (memlock, None)


CRIO = ("[crio.runtime]", 'default_runtime = "crun"', 'default_ulimits = ["memlock=-1:-1"]')


def test_crios_drop_ins_come_after_its_file(host_tree: HostTree) -> None:
    tree = _file("etc/crio/crio.conf", *CRIO) + _file(
        "etc/crio/crio.conf.d/99-nvidia.conf",
        "[crio.runtime]",
        'default_runtime = "nvidia"',
        "[crio.runtime.runtimes.nvidia]",
        'runtime_path = "/usr/bin/nvidia-container-runtime"',
        "[crio.runtime.runtimes.nvidia-container-runtime]",
        "[crio.runtime.runtimes.crun]",
    )
    assert read_crio(files_of(host_tree(tree))) == RuntimeConfig(
        name="crio",
        path="/etc/crio/crio.conf",
        cdi=True,
        default_runtime="nvidia",
        nvidia_runtimes=("nvidia", "nvidia-container-runtime"),
        memlock_bytes=-1,
        systemd_cgroup=True,
    )


def test_nvidias_hook_makes_crios_default_runtime_nvidias(host_tree: HostTree) -> None:
    hook = _file("usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}")
    found = read_crio(files_of(host_tree(_file("etc/crio/crio.conf", *CRIO) + hook)))
    assert found is not None
    assert found.nvidia_runtimes == ("crun",)


def test_without_a_file_there_is_no_configuration(host_tree: HostTree) -> None:
    files = files_of(host_tree("etc/crio/\netc/containerd/\n"))
    assert runtime_configs(files, ()) is None
    assert files.issues == ()


@pytest.mark.parametrize(
    "words", [("-c", "/x/c.toml"), ("--config", "/x/c.toml"), ("--root=/r", "--config=/x/c.toml")]
)
def test_the_file_that_the_running_containerd_names_is_read(
    words: tuple[str, ...], host_tree: HostTree
) -> None:
    files = files_of(host_tree(_containerd("version = 2") + _file("x/c.toml", "version = 3")))
    found = runtime_configs(files, [Process(pid=1, name="containerd", arguments=words)])
    assert [config.path for config in found or ()] == ["/x/c.toml"]


@pytest.mark.parametrize(
    "process",
    [
        Process(pid=1, name="containerd", arguments=("--log-level", "info")),
        Process(pid=1, name="kubelet", arguments=("-c", "/x/c.toml")),
    ],
)
def test_without_a_name_the_usual_file_is_read(process: Process, host_tree: HostTree) -> None:
    files = files_of(host_tree(_containerd("version = 2") + _file("x/c.toml", "version = 3")))
    found = runtime_configs(files, [process])
    assert [config.path for config in found or ()] == [f"/{MAIN}"]


def test_dockers_own_containerd_is_not_the_kubelets(host_tree: HostTree) -> None:
    path = "/var/run/docker/containerd/containerd.toml"
    files = files_of(host_tree(_file(path[1:], "version = 2")))
    process = Process(pid=1, name="containerd", arguments=("--config", path))
    assert runtime_configs(files, [process]) is None


@pytest.mark.parametrize(
    ("words", "memlock", "files"),
    [
        ('"memlock=-1:-1"', -1, None),
        ('"memlock=65536:131072", "nofile=1024:4096"', 65536, 4096),
        ('"nofile=1024"', None, 1024),
        ('"memlock=lots", 3, "nproc=7"', None, None),
    ],
)
def test_crios_default_limits_are_soft_of_memory_and_hard_of_files(
    words: str, memlock: int | None, files: int | None, host_tree: HostTree
) -> None:
    tree = _file("etc/crio/crio.conf", "[crio.runtime]", f"default_ulimits = [{words}]")
    found = read_crio(files_of(host_tree(tree)))
    assert found is not None
    assert (found.memlock_bytes, found.open_files) == (memlock, files)
