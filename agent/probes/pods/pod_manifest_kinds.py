"""Where the kinds of Kubernetes and of job operators keep their pods.

From the API references of Kubernetes 1.36 (workload resources), JobSet v1alpha2, LeaderWorkerSet
v1, Kubeflow Training Operator v1, MPI Operator v2beta1, Kubeflow Trainer v1alpha1 (runtimes),
KubeRay v1, Volcano v1alpha1 and Argo Rollouts v1alpha1.

A path names fields from the document down; ``[]`` behind one stands for each item of a list,
``{}`` for each value of a map.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a kind keeps a pod template.

    Attributes:
        template: the path of the template.
        counts: paths whose product is the number of pods; each begins with fields of *template*.
            One that is absent counts as one.
        role: what the pods are, behind the document's name: a word, or with a dot in front the
            field beside the template, or above it, that names them. Of a map's values, its keys.
        leader: a template beside this one that takes one pod of the last count.
        is_optional: whether it may be absent.
    """

    template: str
    counts: tuple[str, ...] = ()
    role: str = ""
    leader: str = ""
    is_optional: bool = False


_REPLICATED = Place(template="spec.template", counts=("spec.replicas",))
_KUBEFLOW = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")
_FIELDS = ("pytorch", "tf", "mpi", "xgb", "paddle", "jax")


def _jobs(jobs: str) -> tuple[Place, ...]:
    """Return the place in a list of replicated jobs, of which each has a Job's template."""
    job = f"{jobs}.template.spec"
    counts = (f"{jobs}.replicas", f"{job}.parallelism")
    return (Place(template=f"{job}.template", counts=counts, role=".name"),)


def _ray(cluster: str, *others: Place) -> tuple[Place, ...]:
    group = f"{cluster}.workerGroupSpecs[]"
    workers = Place(
        template=f"{group}.template",
        counts=(f"{group}.replicas", f"{group}.numOfHosts"),
        role=".groupName",
        is_optional=True,
    )
    head = f"{cluster}.headGroupSpec.template"
    return (Place(template=head, role="head", is_optional=bool(others)), workers, *others)


def _group() -> tuple[Place, ...]:
    """Return the places of a LeaderWorkerSet, whose size counts the leader."""
    group = "spec.leaderWorkerTemplate"
    leader = f"{group}.leaderTemplate"
    counts = ("spec.replicas", f"{group}.size")
    return (
        Place(template=leader, counts=("spec.replicas",), role="leader", is_optional=True),
        Place(template=f"{group}.workerTemplate", counts=counts, leader="leaderTemplate"),
    )


PLACES: Mapping[str, tuple[Place, ...]] = MappingProxyType(
    {
        "Pod": (Place(template=""),),
        "PodTemplate": (Place(template="template"),),
        "ReplicationController": (_REPLICATED,),
        "ReplicaSet": (_REPLICATED,),
        "Deployment": (_REPLICATED,),
        "StatefulSet": (_REPLICATED,),
        "DaemonSet": (Place(template="spec.template"),),
        "Job": (Place(template="spec.template", counts=("spec.parallelism",)),),
        "CronJob": (
            Place(
                template="spec.jobTemplate.spec.template",
                counts=("spec.jobTemplate.spec.parallelism",),
            ),
        ),
        "JobSet": _jobs("spec.replicatedJobs[]"),
        "LeaderWorkerSet": _group(),
        **{
            kind: (
                Place(
                    template=f"spec.{field}ReplicaSpecs{{}}.template",
                    counts=(f"spec.{field}ReplicaSpecs{{}}.replicas",),
                ),
            )
            for kind, field in zip(_KUBEFLOW, _FIELDS, strict=True)
        },
        "TrainingRuntime": _jobs("spec.template.spec.replicatedJobs[]"),
        "ClusterTrainingRuntime": _jobs("spec.template.spec.replicatedJobs[]"),
        "RayCluster": _ray("spec"),
        "RayJob": _ray(
            "spec.rayClusterSpec",
            Place(template="spec.submitterPodTemplate", role="submitter", is_optional=True),
        ),
        "RayService": _ray("spec.rayClusterConfig"),
        "Rollout": (_REPLICATED,),
    }
)
"""Of each kind, by its name; of Volcano's Job see :data:`VOLCANO_JOB`."""

VOLCANO = "batch.volcano.sh/"
"""The API group whose Job is not the one of Kubernetes."""

VOLCANO_JOB = (
    Place(template="spec.tasks[].template", counts=("spec.tasks[].replicas",), role=".name"),
)

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "TrainJob": "give the TrainingRuntime or ClusterTrainingRuntime that it names",
        "Workflow": "give the pods that it makes, as `kubectl get pods -o yaml` prints them",
    }
)
"""Kinds whose pods are described in another object, or by a program, and where to look."""


def places_of(kind: str, api_version: object) -> tuple[Place, ...]:
    """Return where a document of *kind* keeps its pods; nothing where that is not known."""
    if kind == "Job" and isinstance(api_version, str) and api_version.startswith(VOLCANO):
        return VOLCANO_JOB
    return PLACES.get(kind, ())


def kinds() -> Iterator[str]:
    """Yield the kinds whose pods can be read."""
    yield from PLACES
