"""Pure equations, on numbers and on arrays alike; every other part of Halley calls them."""
