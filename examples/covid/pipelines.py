"""Daily reports as they arrive, whatever their headers; the latest row of each place and day; totals per country and day."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

import oncelake as once

# An inferred type depends on the files that come first: the types of the columns that silver reads are declared.
HINTS = """
    `Province/State` string, Province_State string, `Country/Region` string, Country_Region string, Admin2 string,
    `Last Update` string, Last_Update string, Confirmed bigint, Deaths bigint, Recovered double
"""
FORMATS = ("M/d/yyyy H:mm", "M/d/yy H:mm", "yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd HH:mm:ss")
# A report is 03-13-2020.csv, an earlier version of it revisions/2020-03-13/02_20200314T021557Z.csv.
DAILY = r"(\d\d-\d\d-\d{4})[^/]*$"
REVISION = r"/(\d{4}-\d\d-\d\d)/\d\d_(\d{8}T\d{6}Z)[^/]*$"
COLLECTED = "2021-07-15"


@once.pipeline(
    reads=once.files("landing", format="csv", hints=HINTS, provenance="file"),
    writes=once.append("bronze.reports"),
)
def reports(rows: DataFrame) -> DataFrame:
    """Return all columns as they came. Only a space is not allowed in the names of Delta."""
    return rows.withColumnRenamed("Last Update", "Last/Update")


@once.pipeline(
    reads=once.table("bronze.reports"),
    writes=once.merge(
        "silver.places", keys=["day", "country", "province", "county"], latest_by=["published", "updated"]
    ),
)
def places(rows: DataFrame) -> DataFrame:
    """Return the rows in one set of names and types. Nothing depends on the file, except its day and its version."""
    daily, revised, published = _from_path(DAILY, 1), _from_path(REVISION, 1), _from_path(REVISION, 2)
    updated = _text("Last_Update", "Last/Update")
    return rows.select(
        F.coalesce(F.try_to_date(daily, "MM-dd-yyyy"), F.try_to_date(revised, "yyyy-MM-dd")).alias("day"),
        F.coalesce(_text("Country_Region", "Country/Region"), F.lit("")).alias("country"),
        F.coalesce(_text("Province_State", "Province/State"), F.lit("")).alias("province"),
        F.coalesce(_text("Admin2"), F.lit("")).alias("county"),
        F.coalesce(_time(published, "yyyyMMdd'T'HHmmss'Z'"), F.lit(COLLECTED).cast("timestamp")).alias("published"),
        F.coalesce(*(_time(updated, each) for each in FORMATS)).alias("updated"),
        F.col("Confirmed").alias("confirmed"),
        F.col("Deaths").alias("deaths"),
        F.col("Recovered").cast("bigint").alias("recovered"),
    )


@once.pipeline(reads=once.table("silver.places"), writes=once.overwrite("gold.countries"))
def countries(rows: DataFrame) -> DataFrame:
    """Return the totals per country and day. A place that the newest version of a report no longer has does not count."""
    newest = F.max("published").over(Window.partitionBy("day"))
    current = rows.withColumn("newest", newest).where("published = newest")
    totals = [F.sum(name).alias(name) for name in ("confirmed", "deaths", "recovered")]
    return current.groupBy("country", "day").agg(F.count("*").alias("places"), *totals)


def _text(*names: str) -> Column:
    """Return the first of the columns that has a value."""
    return F.trim(F.coalesce(*(F.col(f"`{name}`") for name in names)))


def _from_path(pattern: str, group: int) -> Column:
    return F.regexp_extract("_once_file", pattern, group)


def _time(text: Column, form: str) -> Column:
    return F.try_to_timestamp(text, F.lit(form))
