"""The `simulate` command: replay job traces against allocation policies."""
