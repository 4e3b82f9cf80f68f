"""What people should know of a run besides its records: kinds of notices, what raises them, and how they are worded."""
