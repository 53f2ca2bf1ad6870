"""Tables and pages that answers of several kinds share."""
