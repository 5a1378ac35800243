"""What is done to a lake beside running it: restate, restore, status, history."""
