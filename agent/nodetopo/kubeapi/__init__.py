"""The only access to the Kubernetes API server."""
