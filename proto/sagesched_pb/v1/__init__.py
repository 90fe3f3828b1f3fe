"""The wire contract `sagesched.v1`, generated from proto/sagesched/v1 by `make gen`; do not edit."""
