"""Certificates, proofs and passwords."""
