"""The outputs of labels that settings ask for."""

from collections.abc import Sequence

from agent.config.settings import Settings
from agent.labels.fabric import CLIQUE_KEY
from agent.publish.labels.output import LabelOutput
from agent.publish.labels.outputs import label_outputs


def places(settings: Settings, names: Sequence[str] | None = None) -> tuple[LabelOutput, ...]:
    """Return the outputs *names*, or else those of *settings*, for the Node of *settings*."""
    is_shared = settings.publish_clique == "auto"
    return label_outputs(
        settings.label_outputs if names is None else names,
        kubeconfig=settings.kubeconfig,
        node=settings.node_name,
        nfd_file=settings.nfd_file,
        namespace=settings.namespace,
        pod=settings.pod_name,
        yields=frozenset({CLIQUE_KEY}) if is_shared else frozenset(),
    )
