"""Serving of transformers: time of one step, memory, steady state, event simulation, search for the best deployment."""
