"""What one writes without oncelake: `arrivals_by_hand.py stream|copy FORMAT SCHEMA SOURCE TABLE`.

`stream` is Spark's file stream source until nothing is left; `copy` is a read and a write. The session has the settings of ours:
listing in as many tasks as there are cores, few shuffle partitions, the class archive.
"""

import json
import os
import sys

from oncelake.spark.session import open_session

doing, kind, schema, source, table = sys.argv[1:]
spark = open_session(json.loads(os.environ.get("BENCH_SPARK", "{}")))
options = {"header": "true"} if kind == "csv" else {}
if doing == "stream":
    rows = spark.readStream.format(kind).schema(schema).options(**options).load(source)
    writer = rows.writeStream.format("delta").option("checkpointLocation", f"{table}/_checkpoint")
    writer.trigger(availableNow=True).start(table).awaitTermination()
else:
    rows = spark.read.format(kind).schema(schema).options(**options).load(source)
    rows.write.format("delta").mode("append").save(table)
