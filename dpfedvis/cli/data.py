"""``dpfedvis data``: which data sets there are, and what is in one."""

import argparse
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import add_command, print_result

if TYPE_CHECKING:
    from dpfedvis.data import Dataset

EPILOG = """examples:
  dpfedvis data list
  dpfedvis data info digits
  dpfedvis data info patients.csv --label-column diagnosis --client-column hospital --json
"""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Register ``data`` with its commands ``list`` and ``info``."""
    parser = subparsers.add_parser(
        "data",
        help="list data sets, or describe one",
        description="List the data sets known by name, or describe one of them or a file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="data_command", metavar="list|info", required=True)
    example = "example:\n  dpfedvis data list --json"
    add_command(commands, "list", run, help="names, sizes and where each was found", epilog=example)
    example = "example:\n  dpfedvis data info digits"
    info = add_command(commands, "info", run, help="sizes, classes, values and origin of one data set", epilog=example)
    info.add_argument("name", metavar="NAME", help="a name from the list, or a .csv, .npz, .npy or .parquet file")
    info.add_argument("--label-column", help="label column (key, in an NPZ file) of a file")
    info.add_argument("--client-column", help="client column (key, in an NPZ file) of a file")
    info.add_argument("--no-download", action="store_true", help="do not download from OpenML")


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
        label_column=args.label_column,
        client_column=args.client_column,
        missing="client-mean",
        download=not args.no_download,
    )
    facts = describe(dataset)
    print_result(args, facts, _sheet(facts))
    return 0


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
        sizes = np.unique(dataset.groups, return_counts=True)[1]
        groups = {"count": len(sizes), "smallest": int(sizes.min()), "largest": int(sizes.max())}
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
        "image shape": shape,
        "source": facts["source"],
        "sha256": facts["sha256"][:16],
        "licence": facts["licence"],
    }
    return "\n".join(f"{key + ':':<14}{value}" for key, value in lines.items())
