"""How often the decoder is right, over many simulated populations (`make calibration`)."""
