"""`sagesched demo`: one workload, two policies, side by side."""
