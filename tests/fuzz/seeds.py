"""Sound documents of every reader, from which the drawn ones are made."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from nodetopo.cli.output import Style
from nodetopo.cli.topo.rows import legend
from nodetopo.cli.topo.rows import text as matrix_text
from nodetopo.formats import json as bounded_json
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.topology.matrix import matrix
from tests.formats.forms import EXAMPLES
from tests.nccl.test_guest import virtual
from tests.tools.bandwidth import logs
from tests.tools.importers import rdma_topo_text
from tests.tools.importers.nccl_xml_text import BY_HAND, DUMP
from tests.tools.importers.topo_m_text import TEXT

_SNAPSHOTS = ("l40s-pcie-4", "ac922", "h100-vm-1", "hgx-a100-4")

_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: trainer
  namespace: team
  annotations: {a: b}
spec:
  containers:
  - name: main
    image: registry/image:1
    resources:
      requests: {cpu: "8", memory: 64Gi, hugepages-2Mi: 2Mi}
      limits: {cpu: "8", memory: 64Gi, nvidia.com/gpu: 2, hugepages-2Mi: 2Mi}
    volumeMounts: [{name: shm, mountPath: /dev/shm}]
  initContainers:
  - {name: init, image: registry/image:1, restartPolicy: Always}
  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]
"""

_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: &m {name: job}
spec:
  parallelism: 2
  template:
    metadata: {<<: *m}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: "1"}}}]
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container}]}}
"""

_PLUGIN = """\
version: v1
flags: {migStrategy: mixed, failOnInitError: true, plugin: {deviceListStrategy: [cdi-cri]}}
sharing:
  timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}
"""

_CLUSTER = "7c1d2f00-0000-4000-8000-000000000001"

_NODES = json.dumps(
    {
        "kind": "List",
        "items": [
            {
                "kind": "Node",
                "metadata": {
                    "name": f"node-{number}",
                    "labels": {
                        "kubernetes.io/hostname": f"node-{number}",
                        "topology.kubernetes.io/zone": "a",
                        "gpu.topology/tier-0": f"rack-{number % 2}",
                        "nvidia.com/gpu.present": "true",
                        "nvidia.com/gpu.count": "8",
                        "nvidia.com/gpu.clique": f"{_CLUSTER}.{number % 2}",
                    },
                    "managedFields": [
                        {"manager": "m", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}
                    ],
                },
            }
            for number in range(4)
        ],
    },
    indent=1,
)

_GANGS = json.dumps(
    {
        "kind": "List",
        "items": [
            {
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "kind": "Topology",
                "metadata": {"name": "t"},
                "spec": {"levels": [{"nodeLabel": "gpu.topology/tier-0"}]},
            },
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "metadata": {"name": "j", "namespace": "n"},
                "spec": {
                    "replicatedJobs": [
                        {
                            "name": "w",
                            "replicas": 2,
                            "template": {
                                "spec": {
                                    "parallelism": 2,
                                    "template": {
                                        "spec": {
                                            "containers": [
                                                {"resources": {"limits": {"nvidia.com/gpu": 8}}}
                                            ]
                                        }
                                    },
                                }
                            },
                        }
                    ]
                },
            },
        ],
    },
    indent=1,
)

_CONFIGZ = json.dumps(
    {
        "kubeletconfig": {
            "enableServer": True,
            "maxPods": 110,
            "podPidsLimit": -1,
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
            "memoryManagerPolicy": "Static",
            "topologyManagerPolicy": "restricted",
            "topologyManagerScope": "pod",
            "reservedSystemCPUs": "0-3",
            "systemReserved": {"cpu": "500m"},
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            "evictionHard": {"memory.available": "100Mi"},
            "featureGates": {"A": True},
            "enforceNodeAllocatable": ["pods"],
        }
    },
    indent=1,
)

_METRICS = """\
# HELP kubernetes_build_info A metric with a constant '1' value
kubernetes_build_info{git_version="v1.36.1",platform="linux/amd64"} 1
kubelet_admission_rejections_total{reason="TopologyAffinityError"} 3
kubelet_topology_manager_admission_errors_total 2
kubelet_device_plugin_alloc_duration_seconds_bucket{resource_name="nvidia.com/gpu",le="1"} 4
kubelet_device_plugin_alloc_duration_seconds_count{resource_name="nvidia.com/gpu"} 5
"""

_CONFIG = """\
version: v1
flags:
  migStrategy: none
  failOnInitError: true
  plugin: {passDeviceSpecs: false, deviceListStrategy: [envvar], deviceIDStrategy: uuid}
sharing:
  timeSlicing:
    renameByDefault: false
    resources: [{name: nvidia.com/gpu, replicas: 4, devices: all}]
"""

_TOML = """\
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
sizes = [1, 2.5, 0x10, 1979-05-27T07:32:00Z]
"""

_TRACES = (
    "arrival_s,duration_s,gpus\n0,100,1\n10,50.5,2\n20,3,4\n30,1,1\n",
    "name,num_gpu,gpu_milli,creation_time,scheduled_time,deletion_time\na,1,1000,0,1,9\nb,2,,1,2,5\n",
    "gpus,jobs\n1,10\n2,5\n4,1\n",
    "quantile,seconds\n0.1,1\n0.5,60\n1,3600\n",
)

_BANDWIDTHS = json.dumps(
    {
        "kind": "nodetopo-bandwidth-table",
        "version": 1,
        "unit": "GB/s",
        "pairs": [{"gpus": [0, 1], "bandwidth": 24.1}, {"gpus": [2, 3], "bandwidth": 48}],
        "sets": [{"gpus": [0, 1, 2], "bandwidth": 20.5}],
    },
    indent=1,
)

_LEVELS = """\
labels: [example.com/rack, example.com/row]
nodes:
  node-1: [rack-1, row-1]
  node-2: [rack-2, row-1]
qualified: true
"""

_CHECKS = """\
severities: {KUB-001: warning}
waivers:
- {code: KUB-002, reason: known, until: 2030-01-01, subject: GPU0}
"""

_LOG = (
    "6,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
    "4,2,3,-;NVRM: GPU at PCI:0000:3b:00: GPU-1\n\x82\x05\x00Title\x90\x08\x00PN\x05ABCDE"
)

_HEALTH = """\
{
 "schema": "nodetopo-health/v1",
 "boot_id": "b",
 "gpus": {"GPU-0": {}}
}
"""


_CPU_STATE = {
    "policyName": "static",
    "defaultCpuSet": "0-7,16",
    "entries": {"u-1": {"main": "8-15"}},
    "checksum": 1,
}
_MEMORY_STATE = {
    "policyName": "Static",
    "machineState": {"0": {"cells": [0], "memoryMap": {}}},
    "entries": {"u-1": {"main": [{"numaAffinity": [0], "type": "memory", "size": 1024}]}},
    "checksum": 1,
}
_DEVICES = {
    "Data": {
        "PodDeviceEntries": [
            {
                "PodUID": "u-1",
                "ContainerName": "main",
                "ResourceName": "nvidia.com/gpu",
                "DeviceIDs": {"0": ["GPU-1"], "-1": ["GPU-2"]},
                "AllocResp": "",
            }
        ],
        "RegisteredDevices": {"nvidia.com/gpu": ["GPU-1", "GPU-2"]},
    },
    "Checksum": 1,
}


def _states() -> list[str]:
    files = {"cpu": _CPU_STATE, "memory": _MEMORY_STATE, "devices": _DEVICES}
    return [json.dumps({"manager": name, "file": file}) for name, file in files.items()]


_KUBELET_FILE = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: 0-3
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
featureGates: {A: true}
"""


def _answers() -> list[str]:
    from nodetopo.probes.kubelet.pb import (  # noqa: PLC0415 - only for its reader
        podresources_pb2 as pb,
    )

    device = {
        "resource_name": "nvidia.com/gpu",
        "device_ids": ["GPU-1"],
        "topology": {"nodes": [{"ID": 1}]},
    }
    memory = {"memory_type": "memory", "size": 1 << 30, "topology": {"nodes": [{"ID": 0}]}}
    container = {"name": "main", "devices": [device], "cpu_ids": [1, 2], "memory": [memory]}
    pods = [{"name": "a", "namespace": "ml", "containers": [container]}]
    held = pb.ListPodResourcesResponse(pod_resources=pods)
    offered = pb.AllocatableResourcesResponse(devices=[device], cpu_ids=[0, 1], memory=[memory])
    return [it.SerializeToString().decode("latin-1") for it in (held, offered)]


_CDI = json.dumps(
    {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "containerEdits": {
            "mounts": [{"hostPath": "/usr/lib64/libcuda.so.580.95.05", "containerPath": "/a"}],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
        },
        "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    },
    indent=1,
)

_REQUESTS = (
    "GET /metrics HTTP/1.1\r\nHost: n:9430\r\nAccept: text/plain; q=0.5, */*\r\n\r\n",
    "GET /readyz?verbose HTTP/1.0\r\n\r\n",
    "GET /healthz HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello",
)


@cache
def seeds(reader: str) -> Sequence[str]:
    """Return sound documents of *reader*."""
    return tuple(_SEEDS[reader]())


def _two_hosts(text: str) -> str:
    """Return *text* as two hosts print it at once, each line with its host and a time."""
    at = "2025-03-11T08:22:31.123456789Z"
    return "".join(f"node-{host}: {at} {line}\n" for line in text.splitlines() for host in "ab")


def _topo_m() -> list[str]:
    texts = [TEXT, _two_hosts(TEXT)]
    for name in _SNAPSHOTS:
        found = matrix(machine(name))
        texts.append(matrix_text(found, machine(name), Style(is_on=False)) + legend(found))
    return texts


def _bandwidth_logs() -> list[str]:
    node = machine("h200-nvl-4")
    return [
        logs.nccl_tests(node, range(4), 300.0, wrong=1),
        logs.nccl_tests(node, range(4), 300.0, layout="old"),
        logs.nccl_json(node, range(4), 300.0),
        _two_hosts(logs.nccl_tests(node, range(4), 300.0)),
        logs.perftest("mlx5_0", 390.0, gpu="1B:00"),
        logs.nvbandwidth(node, {(0, 1): 3.0}, 130.0, host=55.0),
        logs.nvbandwidth_json(node, 130.0),
        logs.p2p_test(node, 130.0),
    ]


_SEEDS: Mapping[str, Callable[[], Sequence[str]]] = {
    "snapshot": lambda: [encode(machine(name)) for name in _SNAPSHOTS],
    "host-snapshot": lambda: [encode(virtual(machine("dgx-h100")))],
    "topo-m": _topo_m,
    "nccl-xml": lambda: [DUMP, BY_HAND],
    "rdma-topo": lambda: [
        rdma_topo_text.text(it) for it in (rdma_topo_text.data_direct(), rdma_topo_text.inline())
    ],
    "trace": lambda: _TRACES,
    "manifest": lambda: (_POD, _JOB, json.dumps(bounded_json.load('{"kind": "Pod"}'))),
    "bandwidths": lambda: (_BANDWIDTHS,),
    "bandwidth-log": _bandwidth_logs,
    "signature": lambda: [example.text for example in EXAMPLES.values()],
    "scrubbed-text": lambda: [example.text for example in EXAMPLES.values()],
    "migrate": lambda: [_PLUGIN, *(example.text for example in EXAMPLES.values())],
    "nodes": lambda: (_NODES,),
    "gangs": lambda: (_GANGS,),
    "levels": lambda: (_LEVELS,),
    "checks": lambda: (_CHECKS,),
    "config": lambda: (_CONFIG,),
    "configz": lambda: (_CONFIGZ,),
    "metrics": lambda: (_METRICS,),
    "health": lambda: (_HEALTH,),
    "json": lambda: (_CONFIGZ,),
    "yaml": lambda: (_POD, _JOB),
    "toml": lambda: (_TOML,),
    "loader-cache": lambda: ("glibc-ld.so.cache1.1" + "\x00" * 80 + "libcuda.so\x00/usr/lib\x00",),
    "kernel-log": lambda: (_LOG,),
    "kernel": lambda: ("{}",),
    "kubelet-state": _states,
    "kubelet-file": lambda: (_KUBELET_FILE,),
    "pod-resources": _answers,
    "cdi": lambda: (_CDI,),
    "http": lambda: _REQUESTS,
}
