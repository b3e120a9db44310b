"""Labels that a controller adds to its pods, which its manifest does not state.

From kubernetes 1.36 (``staging/src/k8s.io/api/batch/v1/types.go``, ``apps/v1/types.go``), JobSet
v1alpha2 (``jobset_types.go``), LeaderWorkerSet v1 (``leaderworkerset_types.go``), Kubeflow Training
Operator v1 (``common_types.go``), KubeRay v1 (``utils/constant.go``), Volcano v1alpha1 and Argo
Rollouts v1alpha1.
"""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

_JOB = ("job-name", "controller-uid", "batch.kubernetes.io/")
_SET = ("controller-revision-hash", "statefulset.kubernetes.io/", "apps.kubernetes.io/")
_JOB_SET = ("jobset.sigs.k8s.io/", *_JOB)
_KUBEFLOW = ("training.kubeflow.org/",)
_RAY = ("ray.io/",)

_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Job": (*_JOB, "volcano.sh/"),
        "CronJob": _JOB,
        "JobSet": _JOB_SET,
        "TrainingRuntime": _JOB_SET,
        "ClusterTrainingRuntime": _JOB_SET,
        "LeaderWorkerSet": ("leaderworkerset.sigs.k8s.io/", *_SET),
        "StatefulSet": _SET,
        "Deployment": ("pod-template-hash",),
        "ReplicaSet": ("pod-template-hash",),
        "DaemonSet": ("controller-revision-hash", "pod-template-generation"),
        "Rollout": ("rollouts-pod-template-hash",),
        **dict.fromkeys(
            ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob"), _KUBEFLOW
        ),
        **dict.fromkeys(("RayCluster", "RayJob", "RayService"), _RAY),
    }
)
"""Kind → the keys, or with a slash at the end the prefixes, of labels that its controller adds."""


class AddedLabels(Struct, frozen=True, kw_only=True):
    """The labels that a controller adds to pods of one template."""

    # Those whose values follow from the manifest.
    known: Mapping[str, str] = field(default_factory=dict)
    # The keys and prefixes (with a slash at the end) of all; other values are not known.
    keys: tuple[str, ...] = ()

    def may_have(self, key: str) -> bool:
        """Return whether the controller may add the label *key*."""
        return any(key == it or (it.endswith("/") and key.startswith(it)) for it in self.keys)


NOTHING_ADDED = AddedLabels()
"""For a pod that no controller makes."""


def added_labels(kind: str, name: str | None, role: str, *, is_volcano: bool) -> AddedLabels:
    """Return the labels that the controller of *kind* adds.

    Args:
        name: of the controller; ``None`` where the API server generates it.
        role: of the pods in the controller; empty if it has only one kind of pods.
        is_volcano: whether a Job is Volcano's.
    """
    known: dict[str, str | None] = {}
    if kind == "Job" and is_volcano:
        known = {"volcano.sh/job-name": name}
    elif kind == "Job":
        known = {"job-name": name, "batch.kubernetes.io/job-name": name}
    elif kind == "JobSet":
        known = {
            "jobset.sigs.k8s.io/jobset-name": name,
            "jobset.sigs.k8s.io/replicatedjob-name": role or None,
        }
    elif kind == "LeaderWorkerSet":
        known = {"leaderworkerset.sigs.k8s.io/name": name}
        known["leaderworkerset.sigs.k8s.io/worker-index"] = "0" if role == "leader" else None
    elif kind == "RayCluster":
        known = {"ray.io/cluster": name}
    elif _KEYS.get(kind) == _KUBEFLOW:
        known = {"training.kubeflow.org/job-name": name}
    return AddedLabels(
        known={key: value for key, value in known.items() if value is not None},
        keys=_KEYS.get(kind, ()),
    )
