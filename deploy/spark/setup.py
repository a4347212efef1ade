from pathlib import Path

from setuptools import Extension, setup

FLAGS = ["-O3", "-std=c11", "-UNDEBUG", "-flto=auto", "-fno-strict-aliasing"]
SOURCES = ["_spark_core.c", *sorted(map(str, Path("src").glob("*/*.c")))]

setup(
    ext_modules=[
        Extension(
            "mq_shards.csrc._spark_core", SOURCES, include_dirs=["src"], extra_compile_args=FLAGS,
            extra_link_args=FLAGS, py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)  # fmt: skip
