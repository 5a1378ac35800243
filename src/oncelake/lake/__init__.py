"""The lake: Spark and Delta, and the only place that knows them. Nothing here is imported with pyspark at the top."""
