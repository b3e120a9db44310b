"""Whether a GPU may be given to a pod: pure judgement of what was seen of it, over time."""
