"""HCAs: offered to the kubelet beside GPUs or together with them, and watched."""
