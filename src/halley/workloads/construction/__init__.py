"""What builders of workloads share: parameters, ops and tensors, usual sequences of ops, notation."""
