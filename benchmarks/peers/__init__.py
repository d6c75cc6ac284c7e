"""The programs that the step-rate benchmark compares ps_trainer with, written as their users write them."""
