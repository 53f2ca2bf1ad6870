"""The frames of a fused group, by kind."""
