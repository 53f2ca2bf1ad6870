"""What a chip takes to build and to power: the area of its die, and its peak power."""
