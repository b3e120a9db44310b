"""When the node is checked, and its pods are measured or explained."""

from nodetopo.components.audit.settings import AuditSettings
from nodetopo.kernel.component import Kernel, Start
from nodetopo.kernel.components import part

START = Start.REGISTERED


def is_wanted(kernel: Kernel) -> bool:
    """Return whether an output shows the health checks, or pods of this node are followed."""
    return kernel.metrics_url is not None or follows_pods(kernel)


def follows_pods(kernel: Kernel) -> bool:
    """Return whether the settings enable an audit, or a loop that follows pods of the node.

    Pods of a simulated machine exist only for the embedded kubelet. Nothing is published of them.
    """
    settings = kernel.settings
    is_asked = settings.audit_node or settings.measure_pods
    if kernel.target.is_real:
        is_asked = is_asked or settings.publish_pod_events or settings.explain_rejections
    return is_asked and (kernel.target.is_real or kernel.target.is_demo) and not settings.once


def check(settings: AuditSettings) -> None:
    """Read the file of severities and waivers.

    Raises:
        InputError: it is invalid, or cannot be read.
    """
    if settings.checks_file is not None:
        part("audit", "checks_file").check(settings.checks_file)
