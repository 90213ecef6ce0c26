"""Facts that age: each in one data file with its source and date, and its loader beside it."""
