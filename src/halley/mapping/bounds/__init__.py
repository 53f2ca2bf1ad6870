"""How good a set of mappings can be at most: lower bounds, and what the stages of a group cost while tile sizes are open."""
