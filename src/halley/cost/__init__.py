"""The cost model: folds over a mapping tree for counts, traffic, footprint, time and energy."""
