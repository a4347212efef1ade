"""Who may do what, the same for all protocols: docs/security.md."""
