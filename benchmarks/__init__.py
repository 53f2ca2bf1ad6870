"""What Halley costs to use: speed of costing, time to a proof, start-up; mappings compared on published model shapes."""
