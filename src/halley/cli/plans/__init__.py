"""Commands that plan for whole systems."""
