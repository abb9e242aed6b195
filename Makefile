# Every target runs one Fabric task of repro/cli/tasks.py, once the environments it needs are there.
# Settings are given as MAKE VARIABLES: make bench MODEL=gpt REPEATS=3
PYTHON ?= python3
RUN_TASK = .venv/bin/python -m repro

.DEFAULT_GOAL := help
.PHONY: help setup cases bench curves learn profile report verify bundle-run keep reproduce reproduced compare plan explore model audit published parse test lock clean \
        pins image image-check image-reproduce sbom bundle bundle-check warm image-test \
        new-cluster provision deprovision fingerprint preflight e2e
MAKEFLAGS += --no-builtin-rules
export

help:  ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.venv/ready: uv.lock docker/tools.lock
	@$(PYTHON) repro/bootstrap.py controller

.venv-trainer/ready: docker/trainer.lock docker/tools.lock
	@$(PYTHON) repro/bootstrap.py trainer

setup: .venv/ready .venv-trainer/ready  ## set up what the other targets need (they do it themselves)

cases: .venv/ready  ## the catalogue of published cases                     [MODEL= CASES=]
	@$(RUN_TASK) cases

bench: .venv/ready .venv-trainer/ready  ## run cases and report on them                         [MODEL= CASES= SCALE= FIT= ITERATIONS= REPEATS= PEER_PYTHON= PEERS= RUN= CLUSTER=]
	@$(RUN_TASK) bench

curves: .venv/ready .venv-trainer/ready  ## loss curves of all layouts, compared                [MODEL= CASES= REPEATS= AT_ONCE= RUN=]
	@$(RUN_TASK) curves

learn: .venv/ready .venv-trainer/ready  ## real data, learned to a stated loss                 [MODEL= REPEATS= AT_ONCE= RUN=]
	@$(RUN_TASK) learn

profile: .venv/ready .venv-trainer/ready  ## where a GPU's time goes, beside PyTorch's           [MODEL= CASES= PEER_PYTHON= PEERS= FIT= PRECISION= CUPTI= RUN=]
	@$(RUN_TASK) profile

report: .venv/ready  ## a run's report and verdicts anew                     [RUN= CHECK=1 TOLERANCE=%]
	@$(RUN_TASK) report

verify: .venv/ready  ## whether a run's files are as recorded                [RUN=]
	@$(RUN_TASK) verify

bundle-run: .venv/ready  ## a run as one archive to hand over                    [RUN=]
	@$(RUN_TASK) bundle-run

keep: .venv/ready  ## a run to be committed, small and without paths       RUN= HOST=
	@$(RUN_TASK) keep

reproduce: .venv/ready .venv-trainer/ready  ## everything on this machine's GPUs, kept as a host's  HOST= [STEPS=, and as bench]
	@$(RUN_TASK) reproduce

reproduced: .venv/ready  ## the pages of the kept runs, and README's table      [HOST= CHECK=1]
	@$(RUN_TASK) reproduced

compare: .venv/ready  ## two runs beside each other                           RUNS="A B"
	@$(RUN_TASK) compare

plan: .venv/ready  ## what to expect of each case, before a run            [CLUSTER= MODEL= CASES= REPEATS= ITERATIONS=]
	@$(RUN_TASK) plan

explore: .venv/ready  ## the ten quickest layouts for a GPT                   [CLUSTER= SHAPE=HIDDENxLAYERS BATCH=]
	@$(RUN_TASK) explore

model: .venv/ready  ## fit the performance model, report its errors
	@$(RUN_TASK) model

audit: .venv/ready  ## what is wrong in the published reports               [LOGS=DIR DATA=DIR CHECK=1]
	@$(RUN_TASK) audit

published: .venv/ready  ## the published reports anew, zh and en                [CHECK=1]
	@$(RUN_TASK) published

parse: .venv/ready  ## one JSON object for any log of the time              LOG=FILE
	@$(RUN_TASK) parse

new-cluster: .venv/ready  ## describe a cluster: asks, checks, writes an inventory [NAME= HOSTS= FINGERPRINTS= …]
	@$(RUN_TASK) new-cluster

provision: .venv/ready  ## set up every node of a cluster the same              CLUSTER= [CHECK=1 LIMIT= TAGS= BUNDLE=]
	@$(RUN_TASK) provision

deprovision: .venv/ready  ## take back what provisioning added                    CLUSTER= [CHECK=1 LIMIT=]
	@$(RUN_TASK) deprovision

fingerprint: .venv/ready  ## what each node is, and where nodes differ            CLUSTER= [CHECK=1]
	@$(RUN_TASK) fingerprint

preflight: .venv/ready .venv-trainer/ready  ## what would spoil a run, and how to mend it           [CLUSTER= FIX=1 ONLY=]
	@$(RUN_TASK) preflight

pins: .venv/ready  ## every outside artefact, checked and printed
	@$(RUN_TASK) pins

image: .venv/ready  ## build the pinned images                              [STACK= NCCL= BASE= DEBIAN= DEBIAN_SECURITY= CA=]
	@$(RUN_TASK) image

image-check: .venv/ready  ## what the images' libraries really are                [STACK= CUBLAS= CUDNN=]
	@$(RUN_TASK) image-check

image-reproduce: .venv/ready  ## build again without cache, compare                   [STACK=, and as image]
	@$(RUN_TASK) image-reproduce

sbom: .venv/ready  ## bill of materials, licences, scan                    [STACK=]
	@$(RUN_TASK) sbom

bundle: .venv/ready  ## all that a node without network needs                [BUNDLE=]
	@$(RUN_TASK) bundle

bundle-check: .venv/ready  ## whether a bundle is whole                            [BUNDLE=]
	@$(RUN_TASK) bundle-check

warm: .venv/ready .venv-trainer/ready  ## compile for a GPU newer than the wheel               [STACK=]
	@$(RUN_TASK) warm

image-test: .venv/ready .venv-trainer/ready  ## tests that need root and Docker                      [ONLY=]
	@$(RUN_TASK) image-test

e2e: .venv/ready .venv-trainer/ready  ## the tests over simulated nodes (root, Docker)        [ONLY= LONG=1]
	@$(RUN_TASK) e2e

test: .venv/ready .venv-trainer/ready  ## lint and tests
	@$(RUN_TASK) test

lock: .venv/ready  ## write the lock files anew from their inputs
	@$(RUN_TASK) lock

clean:  ## remove the environments and caches; runs are kept
	rm -rf .venv .venv-trainer .tools .cache .setup.lock
