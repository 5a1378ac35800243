"""The stream without oncelake: `streams_by_hand.py SERVERS TOPIC MESSAGES TABLE`, with the session settings of ours.

`writeStream.format("delta")` takes in what is available now, in batches of so many messages.
"""

import sys

from oncelake.delta.lake_session import open_lake_session

servers, topic, limit, table = sys.argv[1:]
spark = open_lake_session(table, {}, kafka=True)
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
options |= {"maxOffsetsPerTrigger": limit, "kafka.isolation.level": "read_committed"}
rows = spark.readStream.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS value")
writer = rows.writeStream.format("delta").option("checkpointLocation", f"{table}/_checkpoint")
writer.trigger(availableNow=True).start(table).awaitTermination()
