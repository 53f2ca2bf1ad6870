"""Sweeps over designs: studies, their store, exact fronts by bounds."""
