"""Commands that read answers from files."""
