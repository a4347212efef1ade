# make run     start the broker on 127.0.0.1, messages in ./data      (ARGS='--sync always' adds options)
# make test    all tests                                              (ARGS='tests/supervisor/test_options.py -k file')
# make test-long       those that take minutes: crash campaigns, jobs in JVMs of their own
# make lint    ruff, mypy, clang-format, and the C sources with assertions and all warnings
# make bench   measure, beside beanstalkd, nsqd and nats-server if they are there  (ARGS=...)
# make bench-check     has anything become worse than perf/baseline.json says? under 5 minutes, exit status 1 if so
# make pipeline-demo   a broker of its own, events through two protocols, and what Spark makes of them; about a minute
# make wheel   dist/*.whl, for machines without a compiler, and pyspark_mqshards for those with Spark alone; make deb: a Debian package
# make setup   what the others need: .venv, packages, the C core; done once, redone when something changes (make base: without
#              what tests and lint need, for run and pipeline-demo)

PYTHON ?= python3
ARGS ?=

.ONESHELL:
SHELL := /bin/sh
.SHELLFLAGS := -euc
.DEFAULT_GOAL := run
.PHONY: run test test-long lint bench bench-check pipeline-demo wheel wheel-spark deb base setup beanstalkd nsq nats nats-old pulsar spark \
	spark-classes java

# First in what writes to .venv, dist or build: another make in this tree waits. Then, what that one has made meanwhile is not
# made again.
ALONE = mkdir -p build && exec 9>>build/$(1).lock && flock 9
FRESH = ! test -e $@ || test -n "$$(find $^ -newer $@)" || exit 0

CORE := $(wildcard csrc/*/*.[ch] csrc/*/*/*.[ch] csrc/*/*/*/*.[ch]) csrc/build.py
# A core for the acceptor, the others for workers.
WORKERS := $(shell n=$$(nproc); n=$$((n - 1)); echo $$((n < 1 ? 1 : n > 64 ? 64 : n)))

run: base
	@exec .venv/bin/mq-shards --workers $(WORKERS) --data-dir ./data $(ARGS)

PEERS := beanstalkd nsq nats
# The longest first. None should take much longer than the others: the last one runs alone.
STREAMS := pipeline shards nats others wires operating clusters engine accounts supervisor campaigns pulsar admin
# Those that share a JVM. The other tests of the pipeline need none.
pipeline_TESTS := $(wildcard tests/pipeline/test_spark_*.py)
nats_FILES = $(sort $(wildcard $(addsuffix *.py, $(addprefix tests/nats/test_*, $(1)))))
clusters_TESTS := $(call nats_FILES, cluster hub leaf leaves many_groups)
accounts_TESTS := $(filter-out $(clusters_TESTS), $(call nats_FILES, account callout directories fetches imports latency \
	logging_in nkeys operator permissions resolvers system trace users who))
nats_TESTS := tests/nats $(addprefix --ignore=, $(clusters_TESTS) $(accounts_TESTS))
wires_TESTS := tests/beanstalk tests/nsq
admin_TESTS := $(wildcard $(foreach what, admin* broker* bundles catalog* cluster* credentials* keep_alive kept metrics policies* re* roles stats \
	subscription* topic*, tests/pulsar/test_$(what).py))
pulsar_TESTS := tests/pulsar $(addprefix --ignore=, $(admin_TESTS))
campaigns_TESTS := tests/crash tests/strangers tests/pipeline $(addprefix --ignore=, $(pipeline_TESTS))
operating_TESTS := tests/access tests/console tests/moving tests/packages tests/reader tests/terminal
engine_TESTS := tests/fuzz tests/acceptor tests/base tests/log tests/model tests/ringbuf
shards_TESTS := tests/shards
supervisor_TESTS := tests/supervisor tests/perf
others_TESTS := $(addprefix --ignore=, tests/nats $(filter-out --ignore=%, $(campaigns_TESTS)) $(engine_TESTS) \
	$(operating_TESTS) tests/pulsar $(shards_TESTS) $(supervisor_TESTS) $(wires_TESTS))

ifneq ($(strip $(ARGS)),)
test: setup spark $(PEERS)
	@.venv/bin/python -m pytest $(ARGS)
else
test:
	@$(MAKE) --no-print-directory -j 4 setup java spark $(PEERS)
	# In a new tree each stream would compile the same modules, all at once: 5 s of processor for each.
	.venv/bin/python -m pytest --collect-only -q tests/model >/dev/null &
	.venv/bin/python -c 'from tests import conftest, loaded; loaded.load()' || true
	wait
	# Most of the time tests wait, so several streams of them share two cores. Some measure time, which the rest can spoil:
	# what fails is run again when nothing else runs, and has to pass then.
	$(MAKE) --no-print-directory -j $(words $(STREAMS)) $(STREAMS:%=stream-%)
	failed=$$(cd build && grep -Lx 0 $(STREAMS:%=%.status)) || true
	cat $(STREAMS:%=build/%.log)
	again=
	for status in $$failed; do
		stream=$${status%.status}
		$(MAKE) --no-print-directory again-$$stream || again="$$again $$stream"
	done
	test -z "$$again" || { echo "failed again, when nothing else ran, in:$$again" >&2; exit 1; }
endif

# Ends well whatever its tests say: so that the others do not end with it. None of them has prerequisites, `test` has them:
# make would look at one that waited for its own only when another stream has ended.
$(STREAMS:%=stream-%): stream-%:
	@status=0
	.venv/bin/python -m pytest --durations=8 -o cache_dir=build/pytest-$* $($*_TESTS) >build/$*.log 2>&1 || status=$$?
	echo $$status >build/$*.status
	echo "$*: $$(tail -n 1 build/$*.log)"

$(STREAMS:%=again-%): again-%:
	@.venv/bin/python -m pytest -o cache_dir=build/pytest-$* $($*_TESTS) --last-failed

# And with more examples of what is drawn at random.
test-long: setup spark-classes $(PEERS)
	@.venv/bin/python -m pytest --long -m long $(ARGS)
	test -n "$(strip $(ARGS))" || EXAMPLES=200 .venv/bin/python -m pytest tests/acceptor tests/base tests/log tests/model tests/ringbuf
	# Another seed each day: one alone leaves the same scripts untried for ever.
	test -n "$(strip $(ARGS))" || FUZZ_SECONDS=60 FUZZ_SEED=$$(date +%Y%m%d) .venv/bin/python -m pytest tests/fuzz

lint: setup spark
	@.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	mkdir -p build/mypy && ln -sfn ../.. build/mypy/mq_shards
	.venv/bin/mypy
	.venv/bin/clang-format --dry-run -Werror $(filter %.c %.h, $(CORE)) $(wildcard perf/*.[ch] perf/*/*.[ch])
	.venv/bin/python csrc/build.py --debug --out build/lint

bench: setup spark nsq nats
	@.venv/bin/python -m perf.bench $(ARGS)

bench-check: setup beanstalkd nsq nats
	@.venv/bin/python -m perf.check $(ARGS)

pipeline-demo: base spark
	@export SPARK_SUBMIT_OPTS="-XX:SharedArchiveFile=$$PWD/build/spark-classes.jsa"
	exec .venv/bin/python -m mq_shards.pipeline.demo $(ARGS)

# For any Linux whose C library is as new as this one's, and any Python from 3.11 on.
wheel: wheel-spark
	@$(call ALONE,tree)
	rm -rf build/wheel dist/mq_shards-*.whl
	.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel .
	PATH=$$PWD/.venv/bin:$$PATH .venv/bin/auditwheel repair -w dist build/wheel/*.whl >/dev/null
	ls dist/*.whl

# Of Spark's source and sink alone: two, with a C core and without.
wheel-spark: setup
	@$(call ALONE,tree)
	.venv/bin/python -c '$(call EXTRA,package)' | .venv/bin/python -m pip install -q --disable-pip-version-check -r /dev/stdin
	.venv/bin/python deploy/spark/build.py >/dev/null

deb: wheel
	@$(call ALONE,tree)
	PATH=$$PWD/.venv/bin:$$PATH sh deploy/debian/build dist/mq_shards-*.whl dist

# What the broker needs; and what tests, lint and benchmarks need besides.
base: .venv/.built

setup: base .venv/.tools

# The tests compare with the real one, and skip that where it cannot be had.
beanstalkd:
	@$(call ALONE,tree)
	if ! command -v beanstalkd >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends beanstalkd; } >/dev/null 2>&1 ||
			echo "beanstalkd cannot be installed: comparisons with it are skipped"
	fi

# Spark is large (700 MB, about a minute), so `run` does without. Where it or Java cannot be had, its tests are skipped.
EXTRA = import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*p["optional-dependencies"]["$(1)"], sep="\n")

spark: java .venv/.spark

.venv/.spark: pyproject.toml | .venv/.packages
	@$(call ALONE,tree)
	$(FRESH)
	echo "installing Spark into .venv"
	if .venv/bin/python -c '$(call EXTRA,spark)' | .venv/bin/python -m pip install -q --disable-pip-version-check -r /dev/stdin
	then
		rm -f build/spark-classes.jsa
		touch $@
	else
		echo "Spark cannot be installed: tests of the pipeline are skipped"
	fi

# Each JVM of the tests, and of a demo, that finds it starts in half of the time: 6 s of processor less. Few JVMs, as in
# `make test`, do not save what it takes to make.
spark-classes: spark build/spark-classes.jsa

build/spark-classes.jsa: .venv/.spark | java
	@$(call ALONE,tree)
	$(FRESH)
	rm -f $@
	echo "writing down the classes that Spark loads, once: it starts in half of the time then"
	.venv/bin/python -m tests.pipeline.class_archive

java:
	@$(call ALONE,tree)
	if ! command -v java >/dev/null && [ -z "$${JAVA_HOME:-}" ]; then
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
			echo "installing openjdk-17-jre-headless"
			{ apt-get update -qq && apt-get install -qq -y --no-install-recommends openjdk-17-jre-headless; } >/dev/null 2>&1 ||
				true
		fi
		command -v java >/dev/null || echo "there is no Java 17 (openjdk-17-jre-headless): tests of the pipeline are skipped"
	fi

# NSQ's own programs come through Go's modules, into build/nsq, once. Its go.mod replaces a module, and `go install` of
# a module by its name and version refuses that: hence a copy of the source. Without them comparisons are skipped.
NSQ_VERSION := v1.3.0
NSQ_PROGRAMS := nsqd nsqlookupd nsqadmin nsq_stat nsq_tail
FIND_PROGRAMS := import sys; from perf.nsq.peer import nsq_program; sys.exit(not all(map(nsq_program, sys.argv[1:])))

nsq: setup
	@$(call ALONE,nsq)
	if .venv/bin/python -c '$(FIND_PROGRAMS)' $(NSQ_PROGRAMS); then
		:
	elif ! command -v go >/dev/null; then
		echo "there is no Go to build nsqd with: comparisons with it are skipped"
	else
		echo "building nsqd $(NSQ_VERSION) to compare with"
		mkdir -p build
		work=$$(mktemp -d build/nsq-XXXXXX)
		trap 'rm -rf "$$work"' EXIT
		export GOTOOLCHAIN=local GOWORK=off
		bin=$$PWD/$$work/bin
		source=$$(timeout 120 go mod download -json github.com/nsqio/nsq@$(NSQ_VERSION) 2>/dev/null |
			sed -n 's/^.*"Dir": "\(.*\)",*$$/\1/p')
		if test -n "$$source" && cp -R "$$source" "$$work/source" && chmod -R u+w "$$work/source" &&
			(cd "$$work/source" && GOBIN="$$bin" timeout 600 go install -buildvcs=false ./apps/...) >/dev/null 2>&1
		then
			rm -rf build/nsq
			mv "$$bin" build/nsq
		else
			echo "nsqd cannot be built: comparisons with it are skipped"
		fi
	fi

# The same of NATS.
NATS_VERSION := v2.15.2
# Clusters may have servers from before there were pools of routes, too.
NATS_OLD_VERSION := v2.9.25

nats: nats-old
	@$(call ALONE,nats)
	if [ -x build/nats/nats-server ]; then
		:
	elif ! command -v go >/dev/null; then
		echo "there is no Go to build nats-server with: comparisons with it are skipped"
	else
		echo "building nats-server $(NATS_VERSION) to compare with"
		GOTOOLCHAIN=local GOWORK=off GOBIN="$$PWD/build/nats" timeout 600 \
			go install github.com/nats-io/nats-server/v2@$(NATS_VERSION) >/dev/null 2>&1 ||
			echo "nats-server cannot be built: comparisons with it are skipped"
	fi

nats-old:
	@$(call ALONE,nats-old)
	if [ ! -x build/nats/$(NATS_OLD_VERSION:v%=%)/nats-server ] && command -v go >/dev/null; then
		echo "building nats-server $(NATS_OLD_VERSION) to compare with"
		GOTOOLCHAIN=local GOWORK=off GOBIN="$$PWD/build/nats/$(NATS_OLD_VERSION:v%=%)" timeout 600 \
			go install github.com/nats-io/nats-server/v2@$(NATS_OLD_VERSION) >/dev/null 2>&1 ||
			echo "nats-server $(NATS_OLD_VERSION) cannot be built: comparisons with it are skipped"
	fi

# The real Pulsar comes through Maven: a standalone broker, pulsar-admin and pulsar-perf, 330 MB. Not by itself: `make pulsar`.
pulsar: setup
	@.venv/bin/python -m tests.pulsar.real fetch

# pip has just built the core when it installed; setuptools and make do not agree on when that is too old.
.venv/.built: .venv/.packages $(CORE)
	@$(call ALONE,tree)
	$(FRESH)
	core=$$(.venv/bin/python -c 'import mq_shards.csrc._core as core; print(core.__file__)' 2>/dev/null || true)
	if [ -z "$$core" ] || [ -n "$$(find $(CORE) -newer "$$core")" ]; then
		echo "building the C core"
		.venv/bin/python csrc/build.py --whole >/dev/null
	fi
	# Where Python may not write bytecode each start would compile all of it.
	.venv/bin/python -m compileall -q acceptor csrc gateway ringbuf shards supervisor
	touch $@

.venv/.packages: pyproject.toml | .venv/bin/pip
	@$(call ALONE,tree)
	$(FRESH)
	echo "installing packages into .venv"
	.venv/bin/python -m pip install -q --disable-pip-version-check 'setuptools>=77' 'cffi>=1.17'
	.venv/bin/python -m pip install -q --disable-pip-version-check --no-build-isolation -e .
	touch $@

.venv/.tools: pyproject.toml | .venv/.packages
	@$(call ALONE,tree)
	$(FRESH)
	echo "installing packages for tests into .venv"
	.venv/bin/python -c '$(call EXTRA,test);$(call EXTRA,lint);$(call EXTRA,perf)' |
		.venv/bin/python -m pip install -q --disable-pip-version-check -r /dev/stdin
	touch $@

.venv/bin/pip:
	@$(call ALONE,tree)
	test ! -x $@ || exit 0
	missing=
	command -v cc >/dev/null || missing="$$missing gcc libc6-dev"
	if command -v $(PYTHON) >/dev/null; then
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
			{ echo "$(PYTHON) is too old: 3.11 is needed, name one with make PYTHON=..." >&2; exit 1; }
		$(PYTHON) -c 'import os, sysconfig as s; os.stat(s.get_paths()["include"] + "/Python.h")' 2>/dev/null ||
			missing="$$missing python3-dev"
		$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing="$$missing python3-venv"
	else
		missing="$$missing python3 python3-dev python3-venv"
	fi
	if [ -n "$$missing" ]; then
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
			echo "installing$$missing"
			{ apt-get update -qq && apt-get install -qq -y --no-install-recommends $$missing; } >/dev/null ||
				{ echo "cannot install$$missing: install them and try again" >&2; exit 1; }
		else
			echo "packages are missing: apt-get install$$missing" >&2
			exit 1
		fi
	fi
	echo "making .venv"
	$(PYTHON) -m venv .venv
