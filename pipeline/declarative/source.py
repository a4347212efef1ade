"""A source that Spark never uses: projects that an older release has written still register it.

Spark finds `mqshards` by itself (settings.check_source says why it has to). Such projects belong to their owners and
are not rewritten, so the class that they import stays, under a name that none of their queries reads from.
"""

from __future__ import annotations

from mq_shards.pipeline.source import MqShards


class PipelineSource(MqShards):
    @classmethod
    def name(cls) -> str:
        return "mqshards_of_older_projects"
