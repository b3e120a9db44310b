"""Default locations of a command's kubeconfig."""

import os
from pathlib import Path

_HOME_CONFIG = Path("~/.kube/config")
"""Where ``kubectl`` looks at last."""


def usual_kubeconfig() -> Path | None:
    """Return the kubeconfig where none is set; ``None`` for the account of the pod, or none."""
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    home = _HOME_CONFIG.expanduser()
    return home if not os.environ.get("KUBERNETES_SERVICE_HOST") and home.exists() else None
