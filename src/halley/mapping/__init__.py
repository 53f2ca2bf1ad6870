"""The search for the best mapping of a workload on one chip."""
