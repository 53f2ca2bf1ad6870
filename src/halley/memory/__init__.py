"""Memory of a chip during training: saved activations, the peak of an iteration, lower bounds."""
