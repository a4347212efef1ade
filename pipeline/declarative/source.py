"""What projects register that an older release has written: nothing that Spark would use.

Spark finds `mqshards` by itself (settings.check_source says why it has to). Such projects are their owners' and are not
written anew, so what they import stays, under a name that no query of theirs reads from.
"""

from __future__ import annotations

from mq_shards.pipeline.source import MqShards


class PipelineSource(MqShards):
    @classmethod
    def name(cls) -> str:
        return "mqshards_of_older_projects"
