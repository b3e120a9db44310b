"""Where objects of each kind have their pod templates and the counts of their pods."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class TemplatePlace(Struct, frozen=True, kw_only=True):
    """The position of a kind's pod template.

    A path names fields from the document down; a trailing ``[]`` stands for each item of a list,
    ``{}`` for each value of a map.
    """

    template: str  # the path of the template
    # Paths whose product is the number of pods; each begins with fields of *template*. A missing
    # one counts as one.
    counts: tuple[str, ...] = ()
    # Of the pods, after the document's name: a word, or with a leading dot the field next to the
    # template, or above it, that names them. For a map's values, its keys.
    role: str = ""
    leader: str = ""  # a template next to this one that takes one pod of the last count
    is_optional: bool = False  # whether it can be missing


_REPLICATED = TemplatePlace(template="spec.template", counts=("spec.replicas",))


def _jobs(jobs: str) -> tuple[TemplatePlace, ...]:
    """Return the place in a list of replicated jobs, each with a Job's template."""
    job = f"{jobs}.template.spec"
    counts = (f"{jobs}.replicas", f"{job}.parallelism")
    return (TemplatePlace(template=f"{job}.template", counts=counts, role=".name"),)


def _ray(cluster: str, *others: TemplatePlace) -> tuple[TemplatePlace, ...]:
    group = f"{cluster}.workerGroupSpecs[]"
    workers = TemplatePlace(
        template=f"{group}.template",
        counts=(f"{group}.replicas", f"{group}.numOfHosts"),
        role=".groupName",
        is_optional=True,
    )
    head = f"{cluster}.headGroupSpec.template"
    return (
        TemplatePlace(template=head, role="head", is_optional=bool(others)),
        workers,
        *others,
    )


_LEADER_WORKER = "spec.leaderWorkerTemplate"

PLACES: Mapping[str, tuple[TemplatePlace, ...]] = MappingProxyType(
    {
        "Pod": (TemplatePlace(template=""),),
        "PodTemplate": (TemplatePlace(template="template"),),
        "ReplicationController": (_REPLICATED,),
        "ReplicaSet": (_REPLICATED,),
        "Deployment": (_REPLICATED,),
        "StatefulSet": (_REPLICATED,),
        "DaemonSet": (TemplatePlace(template="spec.template"),),
        "Job": (TemplatePlace(template="spec.template", counts=("spec.parallelism",)),),
        "CronJob": (
            TemplatePlace(
                template="spec.jobTemplate.spec.template",
                counts=("spec.jobTemplate.spec.parallelism",),
            ),
        ),
        "JobSet": _jobs("spec.replicatedJobs[]"),
        "LeaderWorkerSet": (  # whose size counts the leader
            TemplatePlace(
                template=f"{_LEADER_WORKER}.leaderTemplate",
                counts=("spec.replicas",),
                role="leader",
                is_optional=True,
            ),
            TemplatePlace(
                template=f"{_LEADER_WORKER}.workerTemplate",
                counts=("spec.replicas", f"{_LEADER_WORKER}.size"),
                leader="leaderTemplate",
            ),
        ),
        **{
            f"{framework}Job": (
                TemplatePlace(
                    template=f"spec.{name}ReplicaSpecs{{}}.template",
                    counts=(f"spec.{name}ReplicaSpecs{{}}.replicas",),
                ),
            )
            for framework, name in (
                ("PyTorch", "pytorch"),
                ("TF", "tf"),
                ("MPI", "mpi"),
                ("XGBoost", "xgb"),
                ("Paddle", "paddle"),
                ("JAX", "jax"),
            )
        },
        "TrainingRuntime": _jobs("spec.template.spec.replicatedJobs[]"),
        "ClusterTrainingRuntime": _jobs("spec.template.spec.replicatedJobs[]"),
        "RayCluster": _ray("spec"),
        "RayJob": _ray(
            "spec.rayClusterSpec",
            TemplatePlace(template="spec.submitterPodTemplate", role="submitter", is_optional=True),
        ),
        "RayService": _ray("spec.rayClusterConfig"),
        "Rollout": (_REPLICATED,),
    }
)
"""Kind → its places; of Volcano's Job see :data:`VOLCANO_JOB`.

From the API references of Kubernetes 1.36 (workload resources), JobSet v1alpha2, LeaderWorkerSet
v1, Kubeflow Training Operator v1, MPI Operator v2beta1, Kubeflow Trainer v1alpha1 (runtimes),
KubeRay v1, Volcano v1alpha1 and Argo Rollouts v1alpha1."""

VOLCANO = "batch.volcano.sh/"
"""The API group whose Job differs from Kubernetes' Job."""

VOLCANO_JOB = (
    TemplatePlace(
        template="spec.tasks[].template", counts=("spec.tasks[].replicas",), role=".name"
    ),
)

ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        "TrainJob": "give the TrainingRuntime or ClusterTrainingRuntime that it names",
        "Workflow": "give the pods that it makes, as `kubectl get pods -o yaml` prints them",
    }
)
"""Kinds whose pods are described in another object, or by a program → the right input."""
