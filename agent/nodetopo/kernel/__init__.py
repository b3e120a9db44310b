"""The parts that every daemon needs and no component owns: contract, loops, store, server."""
