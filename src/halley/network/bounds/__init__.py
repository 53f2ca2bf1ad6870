"""Lower bounds of collectives and flows on any network."""
