"""The device plugin: devices offered to the kubelet, and its requests answered."""
