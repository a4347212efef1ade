"""The HTTP API of pipelines: records, readers, staged and idempotent publishes (docs/pipeline-http.md)."""
