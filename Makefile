# Every target runs the task of the same name (see repro/cli) once what it needs is installed (see repro/targets.py).
# Its options are given as make variables, `make bench MODEL=gpt REPEATS=3`; `.venv/bin/fab bench --help` lists them.
PYTHON = python3
MAKEFLAGS += --no-builtin-rules
# What a site's modules set for their Python would put other packages into ours (repro/targets.py names them too).
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONUSERBASE PYTHONINSPECT

TASKS = bench rehearse curves convergence profile reproduce report compare verify archive host-reports site cases audit \
        published plan explore new-cluster provision deprovision fingerprint preflight unlock sim image image-check bundle kit \
        compile-kernels test
UNLISTED = parse model effects sim-down base pins image-reproduce sbom bundle-check compile-cache image-test e2e mutation lock

.DEFAULT_GOAL := help
.PHONY: help setup clean $(TASKS) $(UNLISTED)

# The task reads the variables of the command line from MAKEFLAGS, as they were typed. make would expand their values,
# `$(shell …)` as well, in order to export them.
$(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(eval unexport $(name))))

$(TASKS) $(UNLISTED):
	@[ -x .venv/bin/python ] || $(PYTHON) -m repro.bootstrap --for $@
	@.venv/bin/python -m repro --make $@

.DEFAULT:
	@$(PYTHON) -m repro.targets $@ $(TASKS) $(UNLISTED)

##@ Set up
setup:  ## install what any target but mutation needs (each installs its own part by itself)
	@$(PYTHON) -m repro.bootstrap --for $@
clean:  ## remove the environments and caches; runs are kept
	rm -rf .venv .venv-trainer .venv-baseline .venv-baseline-cu102 .tools .cache .setup.lock

##@ Run
bench:  ## run published cases and report on them [MODEL= CASES= REPEATS= BASELINES= CLUSTER= …]
rehearse:  ## run every case at its full world size with tiny widths, without GPUs [MODEL= CASES= MAX_RANKS= CLUSTER= …]
curves:  ## compare the loss curves of all layouts and precisions [MODEL= CASES= JOBS= CLUSTER= …]
convergence:  ## train on real data to a stated loss [MODEL= REPEATS= JOBS= CLUSTER= …]
profile:  ## show where a GPU's time goes, compared with PyTorch [MODEL= CASES= BASELINES= …]
reproduce:  ## all of these on this machine or a cluster, kept as a host's runs HOST= [CLUSTER= STEPS= …]

##@ Report
report:  ## a run's report and verdicts again [RUN= CHECK=1 TOLERANCE=%]
compare:  ## compare two runs RUNS="A B"
verify:  ## whether a run's figures are what it measured, and its files as recorded [RUN= HOST=]
archive:  ## pack a run to hand over, or keep it for a host's page [RUN= HOST= KEY=]
host-reports:  ## write the hosts' pages [HOST= CHECK=1]
site:  ## write the site, claims.csv, ARTIFACT.md and the READMEs' answer [CHECK=1]

##@ Published
cases:  ## list the published cases [MODEL= CASES= FORMAT=json]
audit:  ## what is wrong in the published reports [LOGS=DIR DATA=DIR CHECK=1 FORMAT=json]
published:  ## write the published reports again, zh and en [CHECK=1]

##@ Expect
plan:  ## what to expect of each case, before a run [CLUSTER= MODEL= CASES= FORMAT=json]
explore:  ## the ten quickest layouts for a GPT [CLUSTER= SHAPE=HIDDENxLAYERS BATCH= FORMAT=json]

##@ Cluster
new-cluster:  ## describe a cluster: asks, checks, writes an inventory [NAME= HOSTS= JUMP= FINGERPRINTS= …]
provision:  ## set up every node the same CLUSTER= [CHECK=1 LIMIT= TAGS= BUNDLE=]
deprovision:  ## take back what provisioning added CLUSTER= [CHECK=1 LIMIT=]
fingerprint:  ## what each node is, and where nodes differ CLUSTER= [CHECK=1]
preflight:  ## what would invalidate a run, and how to fix it [CLUSTER= FIX=1 ONLY=]
unlock:  ## free nodes of a run that has stopped or hangs CLUSTER= [CHECK=1 YES=1 FORCE=1]
sim:  ## bring up simulated nodes on this machine; sim-down removes them [NODES= NAME= KIND=vm …]

##@ Images
image:  ## build the pinned images [STACK= FORMAT=sif NCCL= BASE= DEBIAN= CA= …]
image-check:  ## compare the images' libraries with the pins [STACK= CUBLAS= CUDNN=]
bundle:  ## all that a node without a network needs [BUNDLE=]
kit:  ## all that one host without a network needs for a bench, in pieces ARCH= [PART_MIB= BASELINES=1 IMAGES=1 KIT=]
compile-kernels:  ## compile the GPU code for GPUs after Turing, without one [ARCH= JOBS=]

##@ Maintain
test:  ## lint, types and the tests without root or Docker
help:  ## this list
	@awk '/^##@/ {printf "\n%s\n", substr($$0, 5)} \
	      /^[a-z0-9-]+:  ## / {name = $$1; sub(/:$$/, "", name); sub(/^[^#]*## /, ""); printf "  make %-14s %s\n", name, $$0}' Makefile
	@printf '\nAlso: %s\n' '$(UNLISTED)'
	@echo "All options of a task: .venv/bin/fab TASK --help"
