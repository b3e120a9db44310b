"""Generators of the committed files that are made from others; no part of the wheel.

Each is a module with two functions: ``made`` returns every file with its text, ``owned`` the files
of the tree that are its own, so that one it no longer makes is removed. ``scripts/generate`` runs
them.
"""
