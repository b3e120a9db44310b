"""Host settings, container runtimes, CDI specifications and processes."""
