"""Where data sets come from: one module for each, and the registry of those with a name."""
