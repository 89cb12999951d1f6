"""`LSTM`, `GRU` and `RNN`: what they compute, unrolled or in a loop."""
