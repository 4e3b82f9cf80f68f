"""What a peer tells observers that its owner lists, and how both ends decide: without a clock, a loop or a disk."""
