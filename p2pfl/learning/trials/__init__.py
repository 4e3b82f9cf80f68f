"""Proof that fast engines compute what plain torch does, and that a model depends on nothing but its arguments."""
