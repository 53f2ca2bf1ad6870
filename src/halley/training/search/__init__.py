"""The search for the fastest training plan, with its proof."""
