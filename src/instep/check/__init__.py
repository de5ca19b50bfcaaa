"""The checker: reads training loops without running them, and says what is wrong."""
