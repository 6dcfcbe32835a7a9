"""Everything that trains and measures few-shot models, whatever their learner."""
