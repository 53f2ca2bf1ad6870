"""The search for the fastest plan of training, with a proof."""
