"""HCAs: offered to the kubelet alongside GPUs or paired with them, and watched."""
