"""What tells forged reports from honest ones, as far as anything can; no I/O."""
