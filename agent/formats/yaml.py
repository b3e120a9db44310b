"""YAML as Kubernetes reads it, from sources that may mean harm.

Kubernetes' programs turn YAML into JSON first (sigs.k8s.io/yaml v1.6.0, over go.yaml.in/yaml/v2):
a plain word is a number, a boolean or nothing by the rules of resolve.go there, and otherwise a
text, dates included; keys become texts. PyYAML's own rules differ in all of these.

Before anything is built, the text's events are counted, with what each alias repeats: a text that
is small and means something huge is refused, and so is one that holds itself.
"""

from typing import Any

import yaml

from agent.formats import json
from agent.formats.yaml_slips import TRIPPED
from agent.formats.yaml_weight import MAX_NODES, BeyondCapsError, check_weight
from agent.formats.yaml_words import LOADER, Loader

MAX_CHARACTERS = 2 << 20
"""Largest text; the API server takes objects of 1.5 MiB (etcd's ``--max-request-bytes``)."""


def load_all(text: str, max_nodes: int = MAX_NODES) -> list[Any]:
    """Return the documents of *text* as lists, dicts and scalars; empty ones are ``None``.

    Args:
        max_nodes: most scalars, lists and maps, those that aliases repeat included.

    Raises:
        ValueError: not YAML, or beyond a cap. The message says what, and in which line.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 20} Mi characters")
    if text.lstrip().startswith(("{", "[")):
        try:
            return [json.load(text)]  # which YAML is not where tabs indent it
        except ValueError:
            pass
    try:
        check_weight(yaml.parse(text, Loader=LOADER), max_nodes)
        return list(yaml.load_all(text, Loader=Loader))
    except BeyondCapsError as error:
        raise ValueError(f"{error.problem}{_line(error)}") from None
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"not YAML: {error.problem or error.context}{_line(error)}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {str(error).splitlines()[0]}") from None
    except TRIPPED as error:
        raise ValueError(f"not YAML: {type(error).__name__}") from None


def load(text: str, max_nodes: int = MAX_NODES) -> Any:
    """Return the only document of *text*; ``None`` where it is empty. As :func:`load_all`.

    Raises:
        ValueError: as :func:`load_all`, or there are several.
    """
    documents = load_all(text, max_nodes)
    if len(documents) > 1:
        raise ValueError(f"{len(documents)} documents where one is expected")
    return documents[0] if documents else None


def _line(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f" in line {mark.line + 1}" if mark else ""
