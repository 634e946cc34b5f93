"""``dpfedvis data``: which data sets there are, what is in one, a draft of a schema, and example files."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import add_command, path, print_result

if TYPE_CHECKING:
    from pathlib import Path

    from dpfedvis.data import Dataset

EPILOG = """examples:
  dpfedvis data list
  dpfedvis data info digits
  dpfedvis data example hospitals --out hospitals
  dpfedvis data info hospitals/*.csv --schema hospitals/schema.toml
  dpfedvis data schema hospitals/aachen.csv --out draft.toml
"""
_SCHEMA = """\
example:
  dpfedvis data schema a.csv b.csv --out schema.toml

The draft is made here, at home. Kinds of columns are guessed; ranges and lists of values are left open, with a comment
on what to look up, since the smallest and largest value of a file are private. Likely ids and columns with one value
are proposed as drop. --ranges-from-data fills ranges and lists in from the files: every statement then says that they
are not covered by ε.
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register ``data`` with its commands."""
    parser = subparsers.add_parser(
        "data",
        help="list or describe data sets, draft a schema, write example files",
        description="List the data sets known by name, describe data, draft a schema, or write example files.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="data_command", metavar="list|info|schema|example", required=True)
    example = "example:\n  dpfedvis data list --json"
    add_command(commands, "list", run, help="names, sizes and where each was found", epilog=example)
    example = "example:\n  dpfedvis data info digits"
    info = add_command(commands, "info", run, help="sizes, classes, values and origin of one data set", epilog=example)
    info.add_argument("name", nargs="+", metavar="NAME", help="a name from the list, or files, a client each")
    info.add_argument("--schema", metavar="FILE", help="public schema of the columns, in TOML")
    info.add_argument("--label-column", help="label column (key, in an NPZ file) of a file")
    info.add_argument("--client-column", help="client column (key, in an NPZ file) of a file")
    info.add_argument("--no-download", action="store_true", help="do not download from OpenML")
    schema = add_command(commands, "schema", draft_schema, help="write a draft of a schema for files", epilog=_SCHEMA)
    schema.add_argument("files", nargs="+", metavar="FILE", help="CSV or Parquet files")
    schema.add_argument("--out", required=True, type=path, metavar="FILE.toml", help="where to write it; a new file")
    schema.add_argument("--ranges-from-data", action="store_true", help="fill in ranges and lists as the files have "
                        "them; not covered by ε, and said so in every statement")  # fmt: skip
    text = "example:\n  dpfedvis data example hospitals --out hospitals"
    made = add_command(commands, "example", write_example, help="write made-up files of five hospitals", epilog=text)
    made.add_argument("name", choices=["hospitals"], help="which example")
    made.add_argument("--out", required=True, type=path, metavar="FOLDER", help="folder to write to; new or empty")
    made.add_argument("--patients", type=int, default=2000, metavar="N", help="of a hospital, on average (2000)")
    made.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random (0)")


def run(args: argparse.Namespace) -> int:
    """Carry out ``data list`` or ``data info``; return the exit code."""
    if args.data_command == "list":
        rows = list_rows()
        print_result(args, rows, _table(rows))
        return 0
    from dpfedvis.data import load

    # Counting missing values needs them loaded, and nothing is filled before records are dealt.
    dataset = load(
        args.name,
        schema=args.schema,
        label_column=args.label_column,
        client_column=args.client_column,
        missing="client-mean" if args.schema is None else "refuse",
        download=not args.no_download,
    )
    facts = describe(dataset)
    print_result(args, facts, _sheet(facts))
    return 0


def draft_schema(args: argparse.Namespace) -> int:
    """Carry out ``data schema``."""
    from dpfedvis.data.loaders import paths_of
    from dpfedvis.data.schema_draft import draft
    from dpfedvis.runs.folder import FolderTaken, write_texts

    if args.out.exists():
        raise FolderTaken(f"{args.out} exists; choose another name")
    made = draft(paths_of(args.files), ranges_from_data=args.ranges_from_data)
    # On this terminal only: they tell of the records.
    for remark in made.remarks:
        print(f"dpfedvis: at home: {remark}", file=sys.stderr)
    text = made.text
    (written,) = write_texts(args.out.parent, {args.out.name: text})
    open_columns = sum(line.startswith(("# range", "# values")) for line in text.splitlines())
    facts = {"schema": str(written), "ranges": "measured" if args.ranges_from_data else "open", "open": open_columns}
    words = f"{written} is a draft: check the role and kind of each column"
    words += (
        "; its ranges and lists were measured on private data, which ε does not cover"
        if args.ranges_from_data
        else f", and fill in what is open (range or values of {open_columns} columns)"
    )
    print_result(args, facts, words)
    return 0


def write_example(args: argparse.Namespace) -> int:
    """Carry out ``data example``."""
    from accounting import checks
    from dpfedvis.data.example import hospitals
    from dpfedvis.runs.folder import refuse_taken, write_texts

    patients = checks.whole("--patients", args.patients, 10, 1_000_000)
    texts = hospitals(patients, checks.at_least("--seed", args.seed, 0))
    if not _same_files(args.out, texts):
        refuse_taken(args.out)
    written = write_texts(args.out, texts)
    files, schema = [str(each) for each in written[:-1]], str(written[-1])
    command = f"dpfedvis run --data {args.out}/*.csv --schema {schema} --epsilon 2 --out runs/hospitals"
    words = f"{len(files)} hospitals in {args.out}, with their public schema {schema}\nnext: {command}"
    print_result(args, {"files": files, "schema": schema}, words)
    return 0


def _same_files(folder: "Path", texts: dict[str, str]) -> bool:
    """Whether a folder holds these files and no others, so that nothing is lost if they are written again."""
    held = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    return held.keys() == texts.keys() and all(
        path.read_bytes() == texts[name].encode() for name, path in held.items() if path.is_file()
    )


def list_rows() -> list[dict[str, Any]]:
    """Return one dictionary per known data set; nothing is loaded."""
    from dpfedvis.data.catalogue import CATALOGUE, find_file

    rows = []
    for entry in CATALOGUE.values():
        path = find_file(entry)
        embedded = entry.file is None
        where = "scikit-learn" if embedded else str(path) if path else None
        rows.append(
            {
                "name": entry.name,
                "records": entry.records,
                "features": entry.features,
                "classes": entry.classes,
                "found": where is not None,
                "where": where,
                "openml": entry.openml,
            }
        )
    return rows


def describe(dataset: "Dataset") -> dict[str, Any]:
    """Return the facts about a data set that ``info`` shows.

    These are measured on the data and meant for the data's owner; none of them is private.
    """
    import numpy as np

    X = dataset.X
    missing = int(np.isnan(X).sum())
    known = missing < X.size
    groups = None
    if dataset.groups is not None:
        occur, numbers = np.unique(dataset.groups, return_counts=True)
        by_name = dict.fromkeys(dataset.clients, 0) | dict(zip(occur.tolist(), numbers.tolist(), strict=True))
        groups = {"count": len(by_name), "smallest": min(by_name.values()), "largest": max(by_name.values())}
    y, class_names = dataset.numbered()
    counts = [] if y is None else np.bincount(y, minlength=len(class_names)).tolist()
    return {
        "name": dataset.name,
        "records": X.shape[0],
        "features": X.shape[1],
        "classes": dict(zip(class_names, counts, strict=True)),
        "values": [float(np.nanmin(X)), float(np.nanmax(X))] if known else None,
        "public_range": None if dataset.feature_range is None else list(dataset.feature_range),
        "missing": missing,
        "groups": groups,
        "clients": list(dataset.clients),
        "persons": None if dataset.persons is None else len(np.unique(dataset.persons)),
        "schema": None if dataset.schema is None else dataset.schema.sha256,
        "notes": list(dataset.notes),
        "image_shape": None if dataset.image_shape is None else list(dataset.image_shape),
        "source": dataset.source,
        "sha256": dataset.sha256,
        "licence": dataset.licence,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'name':<14} {'records':>8} {'features':>8} {'classes':>8}  where"]
    for row in rows:
        where = row["where"] or (
            f"not found; OpenML {row['openml']} would be asked" if row["openml"] else "not found; set DPFEDVIS_DATA"
        )
        lines.append(f"{row['name']:<14} {row['records']:>8} {row['features']:>8} {row['classes']:>8}  {where}")
    return "\n".join(lines)


def _sheet(facts: dict[str, Any]) -> str:
    classes = ", ".join(f"{name}: {count}" for name, count in facts["classes"].items()) or "no labels"
    values = "none" if facts["values"] is None else "{:g} to {:g} (measured)".format(*facts["values"])
    public = "not known" if facts["public_range"] is None else "{:g} to {:g}".format(*facts["public_range"])
    shape = "x".join(map(str, facts["image_shape"] or [])) or "no image"
    groups = "none"
    if facts["groups"]:
        groups = "{count}, of {smallest} to {largest} records".format(**facts["groups"])
    lines = {
        "name": facts["name"],
        "records": facts["records"],
        "features": facts["features"],
        "classes": f"{len(facts['classes'])} ({classes})" if facts["classes"] else classes,
        "values": values,
        "public range": public,
        "missing": facts["missing"],
        "groups": groups,
        **({"clients": ", ".join(facts["clients"])} if facts["clients"] else {}),
        **({"persons": facts["persons"]} if facts["persons"] is not None else {}),
        "image shape": shape,
        "source": facts["source"],
        "sha256": facts["sha256"][:16],
        "licence": facts["licence"],
    }
    return "\n".join([*(f"{key + ':':<14}{value}" for key, value in lines.items()), *facts["notes"]])
