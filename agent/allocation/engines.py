"""Which engine suits a machine: decided once, by its shape."""

from agent.allocation.engine import Engine
from agent.allocation.facts import Facts
from agent.allocation.nearest_engine import NearestEngine
from agent.allocation.rules import DEFAULT, Rules
from agent.allocation.table_engine import TableEngine
from agent.allocation.terms import Terms
from agent.allocation.tree_engine import TreeEngine


def choose(facts: Facts, rules: Rules = DEFAULT) -> Engine:
    """Return the engine for the machine of *facts*."""
    return suited(Terms(facts, rules))


def suited(terms: Terms) -> Engine:
    """Return the engine for the machine and the rules of *terms*.

    Groups that nest, as on NVSwitch and PCIe machines, make a tree of any size. A mesh or an
    irregular machine is enumerated while it is small. A larger one is answered as the tree that
    is most like it, without proof; none is known to have been built.
    """
    if terms.tree is not None:
        return TreeEngine(terms, terms.tree)
    if terms.nearest is not None:
        return NearestEngine(terms, terms.nearest)
    return TableEngine(terms)
