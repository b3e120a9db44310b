"""Documents inside other documents: texts of a ConfigMap, of Helm values, of a policy."""

import yaml

from nodetopo.formats.document import MAX_MIGRATED_NODES, Value, read_values


def embedded(value: Value) -> Value | None:
    """Return the document in the text of *value*; ``None`` where it is none.

    Empty lines precede it, so that its marks match the enclosing file.
    """
    if not isinstance(value.node, yaml.ScalarNode) or value.node.style is None:
        return None
    is_block = value.node.style in ("|", ">")
    before = value.node.start_mark.line + is_block
    try:
        text = "\n" * before + value.node.value
        documents = read_values(value.file, text, MAX_MIGRATED_NODES, may_repeat=True)
    except ValueError:
        return None
    is_one = len(documents) == 1 and isinstance(documents[0].node, yaml.MappingNode)
    return documents[0] if is_one else None
