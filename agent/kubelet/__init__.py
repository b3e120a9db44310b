"""The device-plugin side: what the kubelet calls and what calls it."""
