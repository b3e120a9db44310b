"""The label outputs that the setting ``label-outputs`` names."""

from collections.abc import Sequence
from pathlib import Path

from nodetopo.components.labels.outputs.nfd import NfdFile, NodeFeaturePublisher
from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import (
    FEATURE_FILE,
    NAMESPACE,
    NFD_FILE,
    NODE,
    NODE_FEATURE,
    LabelOutput,
)
from nodetopo.kubeapi.apply import connection


def label_outputs(
    names: Sequence[str],
    *,
    kubeconfig: Path | None,
    node: str,
    nfd_file: Path = FEATURE_FILE,
    namespace: str = NAMESPACE,
    pod: str | None = None,
    yields: frozenset[str] = frozenset(),
) -> tuple[LabelOutput, ...]:
    """Return the outputs *names*, in that order; they share one connection.

    Args:
        names: of :data:`~nodetopo.components.labels.outputs.output.OUTPUTS`.
        kubeconfig: of the API server; ``None`` for the pod's own account.
        node: the name of the Node that the labels are for.
        nfd_file: for ``nfd-file``.
        namespace: for ``node-feature``.
        pod: the pod of this program, ``None`` outside of a pod; for ``node-feature``.
        yields: labels that the output ``node`` leaves to other programs that write them.
    """
    connect = connection(kubeconfig)

    def output(name: str) -> LabelOutput:
        if name == NODE:
            return NodeLabelPublisher(kubeconfig, node, connect=connect, yields=yields)
        if name == NFD_FILE:
            return NfdFile(nfd_file)
        assert name == NODE_FEATURE
        return NodeFeaturePublisher(kubeconfig, node, namespace=namespace, pod=pod, connect=connect)

    return tuple(map(output, names))
