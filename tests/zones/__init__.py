"""Tests of the NUMA zones that schedulers are told of."""
