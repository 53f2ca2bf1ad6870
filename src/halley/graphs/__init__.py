"""Any dataflow graph on a whole system: kernels, sharding, overlap, memory."""
