"""Execution of mapping trees on real arrays: the oracle of the cost formulas."""
