"""Parse files of any format into Arrow tables: rows that fit the schema, and everything else with a reason. No Spark."""
