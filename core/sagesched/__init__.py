"""The decisions of SageSched: pure values and arithmetic, no clock, no I/O."""
