"""Commands on sweeps of designs."""
