"""Commands that say what an experiment costs and protects, before it runs."""
