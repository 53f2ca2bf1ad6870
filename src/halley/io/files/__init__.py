"""Text files read within bounds and checked against models, and written whole or not at all."""
