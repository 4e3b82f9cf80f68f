"""The same task, learned by p2pfl and by other frameworks, each in an environment of its own."""
