"""The map space: shapes of trees, and tile sizes."""
