"""The pods of a manifest that a flag names."""

from agent.cli.files import read_text
from agent.errors import InputError
from agent.model.pod import Pod
from agent.probes.pods import pods_from_manifest


def pods_of_manifest(name: str) -> tuple[Pod, ...]:
    """Return the pods of the file *name*, a controller's template as one pod.

    Raises:
        InputError: it cannot be read, is no manifest, or holds no pod.
    """
    text = read_text(name)
    try:
        return pods_from_manifest(text)
    except InputError as error:
        raise InputError(f"{name}: {error.cause}", error.cure) from None
