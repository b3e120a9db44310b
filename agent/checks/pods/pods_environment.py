"""What is known of the environment variables of containers."""

from agent.checks.inputs import Inputs
from agent.checks.pods.inputs import missing_of_gpu_pods
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

_environment = missing_of_gpu_pods("environment", lambda _, one: one.environment is not None)


def missing_environment(snapshot: Snapshot) -> Inputs:
    """Need the variables of every container with GPUs, those from ``envFrom`` too."""
    hidden = missing_of_gpu_pods("variables that envFrom adds", _is_open)(snapshot)
    return tuple(dict.fromkeys((*_environment(snapshot), *hidden)))


def _is_open(_pod: Pod, container: Container) -> bool:
    return not container.has_hidden_environment
