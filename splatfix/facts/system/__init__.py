"""The edge to a machine: live, cached, recorded and played back."""
