"""The operator: makes and owns the pods, the Service and the settings that a SageSchedPolicy asks for."""
