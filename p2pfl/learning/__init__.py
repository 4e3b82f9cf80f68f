"""What a peer does alone: train rows of torch models."""
