"""The settings of the kernel, and how every setting is declared."""
