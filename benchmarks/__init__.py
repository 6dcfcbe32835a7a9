"""Speed, side by side with what people use, as ratios in one run: `python -m benchmarks` writes RESULTS.md."""
