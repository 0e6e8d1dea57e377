"""GPU waste, demand forecasts and scaling manifests for Kubernetes."""
