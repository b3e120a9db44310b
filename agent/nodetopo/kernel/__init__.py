"""What every part of a daemon needs and no part owns: the contract, loops, store and server."""
