"""From a TOML file and changes of the command line to a validated experiment, and back."""
