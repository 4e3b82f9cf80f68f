"""Steps of local training: batches, gradients and optimisers on a stack of rows."""
