"""What is kept and shown of runs: `record` keeps them in JSON, the other files show one, two or several side by side."""
