"""Software fitted to measured iterations: the time of a fixed plan under other software, and the fit."""
