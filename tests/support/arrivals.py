"""Pipelines that are driven by files that arrive, and the files."""

import json

import oncelake as once


def drop(folder, name, *rows):
    """Let a file arrive: rows as JSON, or lines of text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def events(*patterns, name="events", path="landing", kind="json", **options):
    """Return a pipeline that passes on what arrives."""

    def load(rows):
        return rows if len(patterns) < 2 else {pattern.target: rows for pattern in patterns}

    reads = once.files(path, format=kind, **options)
    return once.pipeline(reads=reads, writes=patterns or once.append("bronze"), name=name)(load)


def table(project, name="bronze", *columns):
    rows = project.session().read.format("delta").load(project.lake.table(name).path)
    return sorted(tuple(row) for row in rows.selectExpr(*(columns or ("id",))).collect())


def outcomes(report):
    return [(work.slice, work.outcome) for work in report.works]
