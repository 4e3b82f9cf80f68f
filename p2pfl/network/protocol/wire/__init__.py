"""Messages, their msgpack form, and how they are cut and put together again."""
