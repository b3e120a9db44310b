"""Settings of a kubelet that runs: its command line says where its files are."""

from pathlib import Path

from msgspec.structs import replace

from tests.probes.kubelet.kubelet_host import CONFIG, DEFAULTS, HEADER, process, read, refused


def test_the_running_kubelet_says_where_its_files_are(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER,
        "etc/k/config.json": HEADER + "cpuManagerPolicy: static\n",
        "etc/k/config.d/a.conf": HEADER + "topologyManagerScope: pod\n",
        **process(
            "/usr/bin/kubelet", "--config=/etc/k/config.json", "--config-dir", "/etc/k/config.d"
        ),
        **process("/usr/bin/containerd", "--config=/etc/containerd.toml", pid=5),
    }
    assert read(tmp_path, files) == replace(
        DEFAULTS,
        source="/etc/k/config.json + 1 drop-in in /etc/k/config.d",
        cpu_manager_policy="static",
        topology_manager_scope="pod",
    )


def test_flags_win_over_files_and_replace_maps(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + 'cpuManagerPolicy: none\nkubeReserved: {cpu: "1", pid: "9"}\n',
        **process(
            "kubelet",
            "--config",
            "/var/lib/kubelet/config.yaml",
            "--cpu_manager_policy=static",
            "--kube-reserved=cpu=2,memory=1Gi",
            "--eviction-hard=memory.available<5%",
            "--reserved-cpus",
            "0-1",
        ),
    }
    assert read(tmp_path, files) == replace(
        DEFAULTS,
        source="/var/lib/kubelet/config.yaml + flags of pid 812",
        cpu_manager_policy="static",
        kube_reserved={"memory": "1Gi"},  # its CPUs are the reserved ones
        eviction_hard={"memory.available": "5%"},
        reserved_system_cpus="0-1",
    )


def test_a_kubelet_without_files_has_defaults_and_flags_and_no_hard_eviction(
    tmp_path: Path,
) -> None:
    assert read(tmp_path, process("kubelet", "--topology-manager-policy=restricted")) == replace(
        DEFAULTS,
        source="flags of pid 812",
        topology_manager_policy="restricted",
        eviction_hard={},
    )


def test_a_relative_path_is_taken_from_the_kubelets_directory(tmp_path: Path) -> None:
    files = {"opt/k/c.yaml": HEADER, **process("kubelet", "--config=c.yaml")}
    (tmp_path / "proc/812").mkdir(parents=True)
    (tmp_path / "proc/812/cwd").symlink_to("/opt/k")
    assert read(tmp_path, files).source == "/opt/k/c.yaml"


def test_a_kubelet_in_a_container_is_not_the_node_s(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER + "maxPods: 33\n",
        **process("kubelet", f"--config=/{CONFIG}", "--max-pods=22", pid=11),
        "proc/11/status": "Name:\tkubelet\nNSpid:\t11\t7\n",
        **process("kubelet", f"--config=/{CONFIG}", pid=12),
        "proc/12/status": "Name:\tkubelet\nNSpid:\t12\n",
        **process("kubelet", "--config=relative", pid=13),
        "proc/13/status": "Name:\tkubelet\nNSpid:\t13\t1\n",
    }
    assert read(tmp_path, files).max_pods == 33


def test_the_only_kubelet_may_be_in_a_container(tmp_path: Path) -> None:
    files = {
        **process("kubelet", "--max-pods=22", pid=11),
        "proc/11/status": "NSpid:\t11\t7\n",
    }
    assert read(tmp_path, files).max_pods == 22


def test_of_several_kubelets_the_one_whose_file_is_on_this_host_counts(tmp_path: Path) -> None:
    files = {
        "nodes/a.yaml": HEADER,
        **process("kubelet", "--config=/nodes/a.yaml", pid=11),
        **process("kubelet", "--config=/nodes/b.yaml", pid=12),
    }
    assert read(tmp_path, files).source == "/nodes/a.yaml"


def test_the_kubelets_root_directory_is_a_flag(tmp_path: Path) -> None:
    files = process("/opt/bin/kubelet", "--root-dir=/data/kubelet")
    assert read(tmp_path, files).root_directory == "/data/kubelet"


def test_several_kubelets_on_one_host_are_an_issue(tmp_path: Path) -> None:
    files = {
        CONFIG: HEADER,
        **process("kubelet", "--config=/var/lib/kubelet/config.yaml", pid=11),
        **process("kubelet", "--config=/var/lib/kubelet/config.yaml", pid=12),
    }
    assert refused(tmp_path, files).reason == "several kubelets run here: pids 11, 12"
