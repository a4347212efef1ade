"""The Spark Declarative Pipelines project: what `spark-pipelines` runs, and what its transformations are made of."""
