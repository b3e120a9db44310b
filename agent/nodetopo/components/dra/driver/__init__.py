"""Our own DRA driver on the kubelet: prepare claims, register, report health."""
