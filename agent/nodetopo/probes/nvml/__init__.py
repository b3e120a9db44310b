"""NVML, in a supervised child process."""
