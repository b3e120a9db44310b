"""The health of GPUs: pure judgement of observations over time."""
