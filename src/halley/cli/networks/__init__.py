"""Commands about networks, systems and measurements."""
