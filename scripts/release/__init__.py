"""What a release takes: the tree that is tagged, and the files that go with it.

The workflow ``release.yaml`` calls these modules, and tests call them too. They need nothing but
the standard library, so that a job runs them before anything is installed.
"""
