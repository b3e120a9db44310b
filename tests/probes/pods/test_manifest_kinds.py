"""The pods of controllers and job operators: where they are, what they are called, how many."""

import pytest

from nodetopo.errors import InputError
from nodetopo.model.pod import Pod
from nodetopo.probes.pods.manifest import pods_from_manifest
from tests.probes.pods.pod_facts import plain_container, plain_pod

POD = "{metadata: {labels: {a: b}}, spec: {containers: [{name: app, image: x}]}}"
JOB = POD.replace("spec: {", "spec: {restartPolicy: Never, ")
SELECTOR = "selector: {matchLabels: {a: b}}"
RAY = """
  headGroupSpec: {template: POD}
  workerGroupSpecs:
  - {groupName: gpu, replicas: 4, numOfHosts: 2, template: POD}
  - {groupName: cpu, template: POD}
"""
RAY_PODS = [("x-head", None), ("x-gpu", 8), ("x-cpu", None)]


def read(kind: str, rest: str) -> tuple[Pod, ...]:
    for word, text in (("POD", POD), ("JOB", JOB), ("SELECTOR", SELECTOR)):
        rest = rest.replace(word, text)
    return pods_from_manifest(f"kind: {kind}\nmetadata: {{name: x}}\n{rest}")


def named(kind: str, rest: str) -> list[tuple[str, int | None]]:
    pods = read(kind, rest)
    assert {pod.owner_kind for pod in pods} == {kind}
    assert all(pod.containers == (plain_container(image="x"),) for pod in pods)
    return [(pod.name, pod.replicas) for pod in pods]


@pytest.mark.parametrize(
    ("kind", "rest", "replicas"),
    [
        ("PodTemplate", "template: POD", None),
        ("Deployment", "spec: {replicas: 3, SELECTOR, template: POD}", 3),
        ("Deployment", "spec: {SELECTOR, template: POD}", None),
        ("StatefulSet", "spec: {replicas: 0, SELECTOR, template: POD}", 0),
        ("ReplicaSet", "spec: {replicas: 3, SELECTOR, template: POD}", 3),
        ("ReplicationController", "spec: {replicas: 3, template: POD}", 3),
        ("Rollout", "spec: {replicas: 3, template: POD}", 3),
        ("DaemonSet", "spec: {SELECTOR, template: POD}", None),
        ("Job", "spec: {parallelism: 8, completions: 16, template: JOB}", 8),
        (
            "CronJob",
            "spec: {schedule: '@daily', jobTemplate: {spec: {parallelism: 8, template: JOB}}}",
            8,
        ),
    ],
    ids=range(10),
)
def test_the_template_of_a_controller_is_a_pod_named_after_it(
    kind: str, rest: str, replicas: int | None
) -> None:
    pod = plain_pod(
        name="x", containers=(plain_container(image="x"),), owner_kind=kind, replicas=replicas
    )
    assert read(kind, rest) == (pod,)


JOBS = """
 - {name: driver, template: {spec: {template: POD}}}
 - {name: gpu, replicas: 2, template: {spec: {parallelism: 4, template: POD}}}
"""
PYTORCH = """spec:
 pytorchReplicaSpecs: {Master: {replicas: 1, template: POD}, Worker: {template: POD}}
"""
MPI = """spec:
 mpiReplicaSpecs: {Launcher: {template: POD}, Worker: {replicas: 16, template: POD}}
"""
GROUP = """spec:
 replicas: 2
 leaderWorkerTemplate: {size: 4, workerTemplate: POD}
"""
VOLCANO = """apiVersion: batch.volcano.sh/v1alpha1
spec: {tasks: [{name: w, replicas: 4, template: POD}, {template: POD}]}
"""


@pytest.mark.parametrize(
    ("kind", "rest", "expected"),
    [
        ("JobSet", f"spec:\n replicatedJobs:{JOBS}", [("x-driver", None), ("x-gpu", 8)]),
        (
            "ClusterTrainingRuntime",
            f"spec:\n template:\n  spec:\n   replicatedJobs:{JOBS.replace(' -', '    -')}",
            [("x-driver", None), ("x-gpu", 8)],
        ),
        ("PyTorchJob", PYTORCH, [("x-master", 1), ("x-worker", None)]),
        ("MPIJob", MPI, [("x-launcher", None), ("x-worker", 16)]),
        ("LeaderWorkerSet", GROUP, [("x", 8)]),
        (
            "LeaderWorkerSet",
            GROUP.replace("size: 4,", "size: 4, leaderTemplate: POD,"),
            [("x-leader", 2), ("x", 6)],
        ),
        ("RayCluster", f"spec:{RAY}", RAY_PODS),
        ("RayService", f"spec:\n rayClusterConfig:{RAY}", RAY_PODS),
        (
            "RayJob",
            f"spec:\n submitterPodTemplate: POD\n rayClusterSpec:{RAY}",
            [*RAY_PODS, ("x-submitter", None)],
        ),
        ("RayJob", "spec: {submitterPodTemplate: POD}", [("x-submitter", None)]),
        ("Job", VOLCANO, [("x-w", 4), ("x", None)]),
    ],
    ids=range(11),
)
def test_the_templates_of_an_operator_s_job_are_pods_named_after_their_role(
    kind: str, rest: str, expected: list[tuple[str, int | None]]
) -> None:
    assert named(kind, rest) == expected


def test_a_template_has_its_own_annotations_and_the_document_s_namespace() -> None:
    template = "{metadata: {namespace: no, annotations: {k8s.v1.cni.cncf.io/networks: ib}}, SPEC}"
    text = f"{{kind: Job, metadata: {{name: x, namespace: ml}}, spec: {{template: {template}}}}}"
    text = text.replace("SPEC", "spec: {restartPolicy: Never, containers: [{name: c, image: x}]}")
    (pod,) = pods_from_manifest(text)
    assert (pod.namespace, pod.name, pod.has_other_devices) == ("ml", "x", True)


@pytest.mark.parametrize(
    ("kind", "rest", "message"),
    [
        ("JobSet", "spec: {}", "spec.replicatedJobs: missing, or empty"),
        ("JobSet", "spec: {replicatedJobs: []}", "spec.replicatedJobs: missing, or empty"),
        (
            "JobSet",
            "spec: {replicatedJobs: [3]}",
            "spec.replicatedJobs[0]: missing, or not an object",
        ),
        (
            "JobSet",
            "spec: {replicatedJobs: [{template: {}}]}",
            "spec.replicatedJobs[0].template.spec: missing, or not an object",
        ),
        ("MPIJob", "spec: {mpiReplicaSpecs: 3}", "spec.mpiReplicaSpecs: missing, or not an object"),
        (
            "MPIJob",
            "spec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: 3}}}}}",
            "spec.mpiReplicaSpecs.Worker.template.spec.containers: expected a list, found int",
        ),
        (
            "Deployment",
            "spec: {replicas: -1, template: POD}",
            "spec.replicas: expected a whole ",
        ),
        ("RayCluster", "spec: {}", "spec.headGroupSpec: missing, or not an object"),
        (
            "RayClusters",
            "spec: {}",
            "kind: unknown kind 'RayClusters' — did you mean 'RayCluster'?",
        ),
    ],
    ids=range(9),
)
def test_a_job_that_cannot_be_read_is_refused_with_the_place(
    kind: str, rest: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(kind, rest)
    assert str(caught.value).startswith(f"document 1 ({kind} x): {message}")


def test_counts_of_replicas_have_an_end() -> None:
    jobs = JOBS.replace("replicas: 2", f"replicas: {1 << 62}")
    _, pod = read("JobSet", f"spec:\n replicatedJobs:{jobs}")
    assert pod.replicas == 1 << 31
