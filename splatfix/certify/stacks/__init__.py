"""A stack's own trainer: started, observed from inside its process, and measured from outside."""
