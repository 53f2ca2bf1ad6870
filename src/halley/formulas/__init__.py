"""Pure equations, on numbers and on arrays; every other part of Halley calls them."""
