"""What happens to gradients and learning rates before an optimiser takes a step."""
