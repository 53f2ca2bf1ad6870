"""How certain times of plans are, given the errors of predictions on measurements."""
