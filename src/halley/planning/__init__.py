"""Plans of large systems: kernels of one chip, fusion, schedules, sharding, and the search over all of them."""
