"""Reproduction of the paper's tables and figures: published numbers, the runs they need, and the comparison."""
