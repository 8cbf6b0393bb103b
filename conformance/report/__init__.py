"""Reports of runs: `record` stores them in JSON, and the other modules show one, two or several side by side."""
