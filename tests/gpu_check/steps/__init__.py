"""The larger steps of ``test_visit``, one subject a file."""
