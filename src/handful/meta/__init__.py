"""Training and evaluation of few-shot models with any learner."""
