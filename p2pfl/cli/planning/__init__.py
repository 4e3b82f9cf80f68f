"""Commands that show what an experiment costs and protects, before it runs."""
