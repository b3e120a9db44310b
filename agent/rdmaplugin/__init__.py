"""The device plugin of HCAs: pools of HCAs as resources of the kubelet."""
