"""The data pipeline: what is measured of Spark."""
