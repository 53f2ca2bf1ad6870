"""Parts of a model on spatial chips: shardings and partitions together."""
