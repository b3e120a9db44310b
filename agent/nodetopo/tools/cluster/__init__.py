"""The nodes of a whole cluster by their labels, and the schedulers' use of these."""
