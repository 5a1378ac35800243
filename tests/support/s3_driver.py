"""A driver: a process with a Spark session of its own that does one thing after the other, as it is told by its standard input.

`python s3_driver.py PROJECT PROFILE FD`: answers go to the file descriptor, so that standard output is the product's own.
"""

import json
import os
import sys
import traceback

import oncelake as once


class Driver:
    """What can be asked of a driver."""

    def __init__(self, root, profile, answers):
        self.root, self.profile, self.answers = root, profile, answers

    def reply(self, **answer):
        self.answers.write(json.dumps(answer) + "\n")
        self.answers.flush()

    def command(self, *arguments):
        """Run a command of oncelake and return its exit code."""
        from oncelake.cli.main import main

        sys.argv = ["oncelake", *arguments, "--project", self.root, "--profile", self.profile]
        try:
            main()
        except SystemExit as ended:
            return ended.code
        return 0

    def warm(self):
        """Start the session."""
        self.session = once.open(self.root, self.profile).session()
        return dict(self.session.conf.getAll).get("spark.delta.logStore.s3a.impl")

    def run(self, *names, **options):
        """Run pipelines in this process and return the report."""
        return once.open(self.root, self.profile).run(*names, **options).document()

    def run_pausing(self, point, *names, **options):
        """Run pipelines, answer when a failpoint is reached, and go on after the next line of the standard input."""
        from oncelake.model import failpoints

        def pause(reached):
            if reached == point:
                failpoints.watch(None)
                self.reply(answer="paused")
                sys.stdin.readline()

        failpoints.watch(pause)
        return self.run(*names, **options)

    def restate(self, name, **options):
        """Restate a range, and return the report."""
        return once.open(self.root, self.profile).restate(name, **options).document()

    def put(self, path, actions, overwrite=False):
        """Write a file by the log store. Return "written", or the class of the exception."""
        from py4j.protocol import Py4JJavaError

        jvm, conf = self.session._jvm, self.session._jsparkSession.sessionState().newHadoopConf()
        lines = jvm.java.util.ArrayList()
        for action in actions:
            lines.add(action)
        store = jvm.oncelake.S3ConditionalLogStore(conf)
        try:
            store.write(jvm.org.apache.hadoop.fs.Path(path), lines.iterator(), overwrite, conf)
        except Py4JJavaError as error:
            return error.java_exception.getClass().getName()
        return "written"

    def put_large(self, path, lines, last=None):
        """Write lines of 6 MB each, so many that the file is uploaded in parts; the last one may be none."""
        return self.put(path, [*(["x" * (6 << 20)] * lines), *([] if last is None else [last])])

    def race(self, folder, keys, name):
        """Write many keys. Return what happened to each."""
        return [self.put(f"{folder}/{key:020}.json", [name]) for key in range(keys)]

    def append(self, path, app_id, rows):
        """Append rows with a marker, without a lease. Return "written", or the kind of the error."""
        from oncelake.delta import writes
        from oncelake.delta.conflicts import classify
        from oncelake.model.contracts import Stamp
        from oncelake.model.markers import Marker

        frame = self.session.createDataFrame([(row,) for row in rows], "id string").coalesce(1)
        try:
            writes.append(frame, path, Stamp(Marker(app_id, 1), "{}"))
        except Exception as error:  # noqa: BLE001  told to the test
            return classify(error).name
        return "written"

    def read(self, path):
        """Return the ids of a table."""
        return sorted(row.id for row in self.session.read.format("delta").load(path).collect())

    def amounts(self, path):
        """Return the amounts of a table by id."""
        found = {}
        for row in self.session.read.format("delta").load(path).collect():
            found.setdefault(str(row.id), []).append(row.amount)
        return found


if __name__ == "__main__":
    driver = Driver(*sys.argv[1:3], os.fdopen(int(sys.argv[3]), "w"))
    while line := sys.stdin.readline():
        name, arguments, options = json.loads(line)
        try:
            answer = {"answer": getattr(driver, name)(*arguments, **options)}
        except BaseException:  # noqa: BLE001  told to the test
            answer = {"error": traceback.format_exc()}
        driver.reply(**answer)
