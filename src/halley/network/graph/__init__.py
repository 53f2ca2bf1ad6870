"""Networks as graphs: topologies, routes, groups of ranks, measures."""
