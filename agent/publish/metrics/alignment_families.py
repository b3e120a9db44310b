"""Metrics of what pods really got, and of those that were rejected."""

from agent.publish.metrics.family import Family, Kind, by_name, single

ALIGNMENT_FAMILIES = (
    Family(
        name="pods_measured",
        text="Running pods with GPUs or HCAs, by what was measured of them: `aligned`, "
        "`misaligned`, `unknown`",
        labels=("verdict",),
        samples=lambda state: by_name(state.pods_measured),
    ),
    Family(
        name="pods_misaligned",
        text="Running pods whose GPUs, CPUs, memory or HCAs are on different NUMA nodes, by the "
        "first cause: the code of a rule (`nodetopo explain CODE`), or a word of "
        "`docs/alignment.md`",
        labels=("reason",),
        samples=lambda state: by_name(state.pods_misaligned),
    ),
    Family(
        name="pod_measurement_errors",
        text="Times that pods could not be measured, because the kubelet did not answer",
        kind=Kind.COUNTER,
        samples=lambda state: single(state.pod_errors),
    ),
    Family(
        name="rejections",
        text="Pods rejected by the kubelet's managers, `explained` on the pod or `given-up`",
        labels=("outcome",),
        kind=Kind.COUNTER,
        samples=lambda state: by_name(
            {"explained": state.rejections_explained, "given-up": state.rejections_given_up}
        ),
    ),
)
