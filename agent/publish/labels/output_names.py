"""What the outputs of labels are called, where settings and flags name them."""

from pathlib import Path

NODE = "node"
NFD_FILE = "nfd-file"
NODE_FEATURE = "node-feature"
OUTPUTS = (NODE, NFD_FILE, NODE_FEATURE)
"""All there are."""

FEATURES_DIRECTORY = Path("/etc/kubernetes/node-feature-discovery/features.d")
"""Of the host, read by NFD's worker there (nfd v0.19, source/local/local.go)."""

FEATURE_FILE = FEATURES_DIRECTORY / "nodetopo"
"""Files are read by name, and a later one's value of a key counts: ours after GFD's, ``gfd``."""

NAMESPACE = "nodetopo"
"""Of the objects in deploy/daemonset."""

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Where a pod finds its own (Kubernetes, "Accessing the Kubernetes API from a Pod")."""


def own_namespace(file: Path = NAMESPACE_FILE) -> str | None:
    """Return the namespace of this pod; ``None`` outside of one."""
    try:
        return file.read_text("utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
