"""Keys that charts once had, and what took their place.

Sources: the history of ``values.yaml`` of gpu-operator, k8s-device-plugin and
node-feature-discovery, and of the operator's sample ClusterPolicy.
"""

from collections.abc import Mapping

from nodetopo.tools.migrate.forms import Form

_DAEMONSETS = "daemonsets has it for all"
_POD = "securityContext podSecurityContext nodeSelector tolerations affinity priorityClassName"

REMOVED: Mapping[Form, Mapping[str, str]] = {
    Form.PLUGIN_VALUES: {
        "legacyDaemonsetAPI": "it was for Kubernetes before 1.16",
    },
    Form.OPERATOR_VALUES: {
        "psp": "PodSecurityPolicy went with Kubernetes 1.25; psa is for its successor",
        "replicaCount": "the operator has one replica",
        "operator.validator": "validator took its place",
        "operator.clusterversion": "the operator asks the cluster",
        "gfd.migStrategy": "mig.strategy took its place",
        "gfd.discoveryIntervalSeconds": "the variable GFD_SLEEP_INTERVAL took its place",
        **{f"{it}.{word}": _DAEMONSETS for it in ("devicePlugin", "gfd") for word in _POD.split()},
    },
    Form.NFD_VALUES: {
        "topologyGC": "gc took its place",
        "nodeFeatureRule": "the chart always creates the kind",
        "serviceAccount": "each part has its own",
        "rbac": "each part has its own",
        "master.featureApi": "NodeFeature objects took the place of gRPC",
        "master.featureRulesController": "controllers follow from the feature gates",
        "master.crdController": "controllers follow from the feature gates",
        "master.resourceLabels": "rules with extendedResources took its place",
        "master.topologyUpdaterNs": "it is no longer needed",
        "master.service": "it was for gRPC",
        **dict.fromkeys(
            ("master.metricsPort", "master.healthPort", "worker.metricsPort", "worker.healthPort"),
            "port took its place",
        ),
        **dict.fromkeys(("master.args", "worker.args"), "extraArgs took its place"),
    },
}
"""By form and path: the reason, or what took its place."""
