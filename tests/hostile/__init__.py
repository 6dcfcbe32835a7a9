"""Files, environments and moments chosen to do harm: whatever happens is a result or one clear error."""
