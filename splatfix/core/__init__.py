"""What every room shares: one runner, one way to write files, one error type, one JSON codec. Imports nothing of ours."""
