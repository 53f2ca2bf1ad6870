"""Sweeps as tables, sheets and pages."""
