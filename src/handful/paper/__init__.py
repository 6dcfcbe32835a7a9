"""The paper's tables and figures again: published numbers, the runs that they need, and an honest comparison."""
