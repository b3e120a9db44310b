"""Rules about the kubelet: its managers, their options, files and known bugs."""
