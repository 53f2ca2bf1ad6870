"""Commands about mappings on one chip."""
