"""What does a micro-batch cost in Python, beyond the plain loop?"""
