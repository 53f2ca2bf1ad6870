"""Answers of all kinds, with what can be done with each: save, show, check, report, compare, explain, table, figure."""
