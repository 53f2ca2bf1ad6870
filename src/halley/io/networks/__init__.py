"""Network files, measured collectives, and the formats of other tools."""
