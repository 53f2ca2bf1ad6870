"""Cost formulas as straight-line programs, run on many mappings at once."""
