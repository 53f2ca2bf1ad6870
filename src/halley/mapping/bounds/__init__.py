"""Lower bounds of sets of mappings, and costs of a group's stages with open tile sizes."""
