"""Settings: what is checked of pods and of the kubelet, and who is told."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.config import values
from agent.config.option import option, switch


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """The audit."""

    checks_file: Path | None = field(
        default=None,
        metadata=option(
            values.path_or_none,
            "severities and waivers for `health`, `audit` and the metrics of both, YAML or JSON",
            "FILE",
        ),
    )
    kubelet_url: str | None = field(
        default=None,
        metadata=option(
            values.kubelet_url,
            "where the kubelet answers, such as https://10.0.0.7:10250; without it its files tell",
            "URL",
        ),
    )
    kubelet_ca_file: Path | None = field(
        default=None,
        metadata=option(
            values.path_or_none,
            "authority that signed the kubelet's certificate; default the service account's",
            "FILE",
        ),
    )
    kubelet_insecure_tls: bool = field(
        default=False,
        metadata=switch("accept any certificate of the kubelet, which most sign themselves"),
    )
    audit_node: bool = field(
        default=True,
        metadata=switch("judge the node as `audit` does, for metrics, every ten minutes"),
    )
    measure_pods: bool = field(
        default=True,
        metadata=switch("measure how pods with GPUs are aligned, for metrics, once a minute"),
    )
    publish_pod_events: bool = field(
        default=False,
        metadata=switch("post an Event on a pod that is misaligned"),
    )
    explain_rejections: bool = field(
        default=False,
        metadata=switch("explain on a pod why the kubelet rejected it, as Event and in the log"),
    )

    @property
    def attends(self) -> bool:
        """Whether the node is judged, or anything is done about pods that run or were rejected."""
        follows_pods = self.measure_pods or self.publish_pod_events or self.explain_rejections
        return self.audit_node or follows_pods
