"""Mappings on one chip as tables, figures and pages."""
