"""Plans of training and sharded graphs as tables, figures and pages."""
