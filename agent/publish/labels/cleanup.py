"""Take everything of ours away again, and say what it was; for an uninstall."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.errors import AgentError
from agent.publish.labels.label_wish import NOTHING
from agent.publish.labels.output import LabelOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What was found in one place.

    Attributes:
        output, place: which one.
        labels: ours that were there, and are gone unless *problem* says otherwise.
        is_there: whether there was anything of ours, if only an empty file.
        problem: why it could not be read or taken away; ``None`` where that went well.
    """

    output: str
    place: str
    labels: Mapping[str, str]
    is_there: bool
    problem: str | None = None


def clean(outputs: Iterable[LabelOutput], *, is_dry: bool) -> Iterator[Cleaned]:
    """Take what is ours from each of *outputs*, or with *is_dry* only look; one may fail alone."""
    for output in outputs:
        try:
            found = output.changes(NOTHING, complete=True) if is_dry else output.remove()
        except AgentError as error:
            yield Cleaned(
                output=output.name,
                place=output.place,
                labels={},
                is_there=False,
                problem=str(error),
            )
        else:
            yield Cleaned(
                output=output.name,
                place=output.place,
                labels=found.removed,
                is_there=found.is_there,
            )
