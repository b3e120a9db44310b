"""GPUs: read, offered to the kubelet, and watched."""
