"""The jars of Kafka: four with which Spark reads it, and those of a broker for development."""

from __future__ import annotations

SPARK_KAFKA, CLIENT, BROKER = "4.2.0", "3.9.2", "4.3.1"
# What pyspark does not have itself. Of the token provider, which only brokers with delegation tokens use, 4.2.0 is not
# published everywhere.
KAFKA_COORDINATES = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK_KAFKA),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", CLIENT),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_BROKER_MODULES = """
    kafka-clients kafka-coordinator-common kafka-group-coordinator kafka-group-coordinator-api
    kafka-metadata kafka-raft kafka-server kafka-server-common kafka-share-coordinator kafka-storage
    kafka-storage-api kafka-tools-api kafka-transaction-coordinator kafka_2.13
"""
# What the pom of kafka_2.13 leads to, and log4j-slf4j-impl, without which a broker that fails logs nothing.
_BROKER_LIBRARIES = """
    at.yawk.lz4:lz4-java:1.10.2
    com.dynatrace.hash4j:hash4j:0.22.0
    com.fasterxml.jackson.core:jackson-annotations:2.21
    com.fasterxml.jackson.core:jackson-core:2.21.2
    com.fasterxml.jackson.core:jackson-databind:2.21.2
    com.fasterxml.jackson.dataformat:jackson-dataformat-csv:2.21.2
    com.fasterxml.jackson.dataformat:jackson-dataformat-yaml:2.21.2
    com.fasterxml.jackson.datatype:jackson-datatype-jdk8:2.21.2
    com.github.ben-manes.caffeine:caffeine:3.2.0
    com.github.luben:zstd-jni:1.5.6-10
    com.google.re2j:re2j:1.8
    com.typesafe.scala-logging:scala-logging_2.13:3.9.6
    com.yammer.metrics:metrics-core:2.2.0
    commons-beanutils:commons-beanutils:1.11.0
    commons-collections:commons-collections:3.2.2
    commons-digester:commons-digester:2.1
    commons-logging:commons-logging:1.3.5
    commons-validator:commons-validator:1.10.1
    net.sf.jopt-simple:jopt-simple:5.0.4
    net.sourceforge.argparse4j:argparse4j:0.7.0
    org.apache.logging.log4j:log4j-api:2.25.4
    org.apache.logging.log4j:log4j-core:2.25.4
    org.apache.logging.log4j:log4j-slf4j-impl:2.25.4
    org.bitbucket.b_c:jose4j:0.9.6
    org.hdrhistogram:HdrHistogram:2.2.2
    org.jspecify:jspecify:1.0.0
    org.pcollections:pcollections:4.0.2
    org.scala-lang:scala-library:2.13.18
    org.scala-lang:scala-reflect:2.13.18
    org.slf4j:slf4j-api:1.7.36
    org.xerial.snappy:snappy-java:1.1.10.7
    org.yaml:snakeyaml:2.5
"""


def _parse(line: str) -> tuple[str, str, str]:
    group, artifact, version = line.split(":")
    return group, artifact, version


BROKER_COORDINATES = (
    *(("org.apache.kafka", module, BROKER) for module in _BROKER_MODULES.split()),
    *(_parse(line) for line in _BROKER_LIBRARIES.split()),
)
