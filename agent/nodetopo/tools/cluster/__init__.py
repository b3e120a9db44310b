"""The nodes of a whole cluster as their labels tell of them, and what schedulers make of these."""
