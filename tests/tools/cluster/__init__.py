"""Tests of what is made of the labels of a cluster."""
