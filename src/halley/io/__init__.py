"""Files in and out: chips, problems, results, and the JSON Schemas of them."""
