"""Measurements of instep beside the packages that do a similar job."""
