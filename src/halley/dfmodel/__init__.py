"""Training on a whole system in the view of DFModel (arXiv 2412.16432)."""
