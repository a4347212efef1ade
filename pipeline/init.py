"""`mq-pipeline init`: writes a declarative project, once. From then on it belongs to its owner."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from mq_shards.pipeline.run import project_of


def run(options: argparse.Namespace, master: str, connection: Mapping[str, str]) -> int:
    project = project_of(options, connection)
    project.write()
    print(f"{project.directory} is a project now: what is in transformations/ and the spec is yours to change.")
    print(f"spark-pipelines --remote '{master}' run --spec {project.spec_path}")
    return 0
