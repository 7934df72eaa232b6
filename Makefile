# What one types while working on rowrelay. CONTRIBUTING.md says more.

STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION      = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TESTFLAGS    = -timeout 30m
PACKAGES     = ./... ./outbox/...

# The race detector, but not within what only computes: the SQLite that was translated
# to Go (C has no goroutines to watch, and it would be five times as slow), ciphers and
# hashes, of which each login has thousands, and regular expressions. Nor within the Kafka client that tests read by,
# which is nobody else's: closed while it begins to read, it races with itself for its session's id.
RACE         = -race $(foreach other,modernc.org crypto/internal regexp github.com/twmb/franz-go/pkg/kgo,'-gcflags=$(other)/...=-race=false')

# Test programs are thrown away: they are linked without what a debugger needs, are vetted
# by make lint, have SQLite's C as it stands (optimizing it takes longer than it runs), and
# collect garbage a tenth as often, as does the compiler: that took each a third of the time.
CHEAP        = env GOGC=1000 GOMEMLIMIT=1500MiB GOFLAGS="$$(go env GOFLAGS) -vet=off -ldflags=-s" CGO_CFLAGS=-O0 ROWRELAY_SERVERS_IN_MEMORY=on

# Many tests wait, for leases and for servers: so more of them than there are cores,
# and more packages.
AT_ONCE      = -p 4 -parallel 4

# A second MySQL driver. Both register themselves under one name, so this one is
# linked under another. It closes a connection while it writes to it, which the
# race detector doesn't let pass.
SECOND_MYSQL = -tags=gomysql -ldflags=-X=github.com/go-mysql-org/go-mysql/driver.driverName=gomysql

# The environment without the servers' variables.
NO_SERVERS = env $$(env | sed -n 's/^\(ROWRELAY_TEST_[A-Z0-9_]*\)=.*/-u \1/p') -u REQUIRE_SERVERS

# The suites of make test: each is one go test.
SUITES = $(addprefix on-servers-,race store-race store scenes histories relay command libraries alerts examples bench helm browser) $(PLUGIN_SUITES)

# The official plug-ins. Each is a module of its own.
PLUGINS       = $(patsubst %/go.mod,%,$(wildcard plugins/*/go.mod))
PLUGIN_SUITES = $(PLUGINS:plugins/%=on-servers-plugin-%)

# The parts of make proof.
PROOFS = plans pairs $(VERSIONS:%=version-%) version-sqlite335 brokers sql releases failovers power backlog scenes topologies messages many quorum networks hour soak model histories outages fuzz sqlite e2e alerts browser tools plugins

# A target that fails keeps no other one from running; make still fails in the end.
MAKEFLAGS += --keep-going

.DEFAULT_GOAL := help
.PHONY: conformance proof-brokers help test on-servers on-servers-store on-servers-stores-and-scenes $(SUITES) proof proof-check proof-versions $(PROOFS:%=proof-%) quick bench measure lint fmt tidy generate-check build build-plugins cross site release-rehearsal demo servers-up servers-down

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

test: ## all tests, with the race detector, against real servers that it brings up and down
	$(CHEAP) sh -c '$(COMPILE) & exec deploy/servers/servers run -- $(MAKE) --no-print-directory on-servers'

# Some tests build the command, at the same time: what they need is compiled once, before, while the servers start.
COMPILE = go build -o /dev/null ./cmd/rowrelay

# run is go test with some flags. Its output comes while it runs, each line behind the suite's name.
run = $(CURDIR)/bin/testrun $(@:on-servers-%=%) $(1) -shuffle=on $(TESTFLAGS)

# tests runs the tests of those of PACKAGES that grep chooses, with some flags.
tests = packages=$$(go list $(PACKAGES)) && echo "$$packages" | grep $(1) | xargs -r $(call run,$(2))

# Scenes wait most of the time: so more of them.
SCENES_AT_ONCE = -parallel 6

# What has little use for the race detector: the command, whose work is the libraries', and what is the database's work.
WITHOUT_RACE = -e /cmd/rowrelay$$ -e /internal/readme$$ -e /migrations$$ -e /internal/outboxdb$$ -e /internal/outboxdb/inbox$$
PROCESSES = -e /internal/e2e$$
ENGINE = -e /relay$$
STORES = -e /relay/sqlstore$$

# What computes for long comes without the race detector, which makes it five to ten times as slow,
# and with it in proof: scenes with processes of their own, the command and writers, most of relay's tests, of which
# simulated histories come with it, too, and the store's checks on all servers but one.
# At the end come the closing lines of all suites, those of failed ones last.
#
on-servers: bin/testrun
	$(COMPILE)
	@results=$$(mktemp -d) && trap 'rm -rf "$$results"' EXIT INT TERM && \
	{ $(MAKE) --no-print-directory --jobs=4 RESULTS=$$results on-servers-race on-servers-stores-and-scenes \
		$(filter-out %-store %-store-race %-scenes %-race,$(SUITES)); status=$$?; } && \
	cat $$(find $$results -name 'ok-*') $$(find $$results -name 'failed-*') </dev/null && exit $$status

$(SUITES): bin/testrun

bin/testrun: $(wildcard internal/testrun/*.go)
	go build -o $@ ./internal/testrun

on-servers-race:
	@$(call tests,-v $(WITHOUT_RACE) $(PROCESSES) $(ENGINE) $(STORES),$(RACE) $(AT_ONCE))

on-servers-command:
	@$(call tests,$(WITHOUT_RACE),$(AT_ONCE))

on-servers-histories:
	@$(call tests,$(ENGINE),$(RACE) -run '^TestSimulation')

on-servers-relay:
	@$(call tests,$(ENGINE) -e /relay/storetest$$,$(AT_ONCE))

on-servers-store-race:
	@$(call tests,$(STORES),$(RACE) $(AT_ONCE) -run '^TestStore$$/^postgres18$$')

on-servers-store:
	@$(call tests,$(STORES),$(AT_ONCE) -skip '^TestStore$$/^postgres18$$')

on-servers-scenes:
	@$(call tests,$(PROCESSES),$(SCENES_AT_ONCE))

# Scenes come after the stores: they have transactions open for long, which hold up the safe id of each table of their server.
on-servers-stores-and-scenes:
	@$(MAKE) --no-print-directory on-servers-store-race on-servers-store; stores=$$?; \
	$(MAKE) --no-print-directory on-servers-scenes && exit $$stores

on-servers-libraries:
	@cd internal/libraries && $(call run,$(RACE)) .

on-servers-alerts:
	@cd internal/libraries && $(call run) ./alerts

on-servers-examples on-servers-bench:
	@cd $(@:on-servers-%=%) && $(call run) ./...

$(PLUGIN_SUITES):
	@cd plugins/$(@:on-servers-plugin-%=%) && $(call run) ./...

on-servers-helm:
	@cd deploy/helm && $(call run) ./...

on-servers-browser:
	@cd internal/browser && $(call run) ./...

# The rows of a sink that is down, how often all are looked at, how often a
# server loses its last second, and the rows of 1 MiB that a relay meets.
PROOF = -backlog 12000000 -sweep 10m -rounds 5 -large-rows 1500

proof: ## longer proofs with servers of their own: failovers, crashes, a backlog of 12 million; hours; or a part: make proof-hour
	.ci/proof $(PROOFS)

# The folder of the histories that a part of make proof writes. record runs scenes, and has both programs judge their histories.
HISTORIES = $(CURDIR)/bin/proof
record    = rm -rf "$(HISTORIES)/$@" && go test -v -timeout 30m ./internal/e2e -proof "$(HISTORIES)/$@" $(1) && go run ./internal/proof/judge "$(HISTORIES)/$@"
recorded  = sh -c '$(call record,$(1))'

proof-check: # judges the histories that were written, with the programs in Go and in Python
	go run ./internal/proof/judge $(wildcard $(HISTORIES)/*)

proof-plans: # what PostgreSQL plans for a million rows
	deploy/servers/servers run postgres15 postgres18 -- go test -v -run 'TestPlans$$' ./relay/sqlstore -planned-rows 700000

proof-pairs: # stores, on each server with each of its drivers
	$(CHEAP) deploy/servers/servers run postgres15 postgres18 mariadb1011 mariadb105 mysql -- go test $(RACE) -timeout 2h ./relay/sqlstore -pairs
	deploy/servers/servers run mariadb1011 -- go test $(SECOND_MYSQL) -timeout 1h -run 'TestStore$$/mariadb1011/gomysql|TestMySQLSettings/mariadb1011' ./relay/sqlstore ./cmd/rowrelay

proof-failovers: # failovers, and servers that lose their last second
	ROWRELAY_TEST_FAKETIME=$$(deploy/servers/servers words faketime) REQUIRE_SERVERS=1 \
		deploy/servers/servers run postgres15 mariadb1011 mysql -- $(call recorded,-run "Failover|CrashRecovery|Server.*Changes|Switchover" -long -clusters-last 2m $(PROOF))

proof-backlog: # a sink that is down with a backlog, while servers are restarted
	deploy/servers/servers run postgres15 mariadb1011 mysql -- go test -v -timeout 30m -run 'SinkThatIsDown|Backlog' ./internal/e2e -long $(PROOF)

proof-scenes: # suspended relays, standbys, reset sequences, large rows, killed relays
	deploy/servers/servers run postgres15 postgres18 mariadb1011 mariadb105 mysql -- $(call recorded,-run "Suspended|Standby|Sequence|LargeRows|KilledRelays(ByRows)?Lose|SeveralSinks|CutConnections|StoppedRelay|LogicalReplication" -long $(PROOF))

# The number of messages of each scene of proof-messages.
MESSAGES = 320000

proof-messages: # many messages to brokers, on each database, while relays are killed and connections are cut
	deploy/servers/servers run postgres15 postgres18 mariadb1011 mysql kafka rabbitmq -- $(call recorded,-run "KillsAndCuts" -messages $(MESSAGES))

proof-topologies: # clusters whose nodes are killed
	ROWRELAY_TEST_GALERA=$$(deploy/servers/servers words galera) ROWRELAY_TEST_PATRONI=$$(deploy/servers/servers words patroni) REQUIRE_SERVERS=1 \
		deploy/servers/servers run postgres15 mariadb1011 mysql -- $(call recorded,-run "TestGalera|TestPatroni|TestGroupReplication" -long -clusters-last 2m $(PROOF))

# The versions that the tests of every change don't run on.
VERSIONS = postgres13 postgres14 postgres16 postgres17 mysql80 mariadb114 mariadb118

# All versions of brokers: those that the tests of every change run on, and others.
BROKERS = kafka28 kafka39 kafka kafka44 rabbitmq rabbitmq4 rabbitmq43

proof-brokers: $(BROKERS:%=proof-broker-%) # the sinks for Kafka and RabbitMQ, and a scene with each, on each version

proof-broker-%:
	deploy/servers/servers run $* postgres15 -- sh -c 'export $(call in-place,$*,$(sink-of)) && go test -timeout 30m ./sinks/$(sink-of) && \
		$(call record,-run "KillsAndCuts/^$(sink-of)")'

# The sink of a version of a broker: kafka or rabbitmq.
sink-of = $(if $(findstring kafka,$*),kafka,rabbitmq)

# The variables of a server, with the values of the server that takes its place.
in-place = $(call variable-of,$(2))="$$$(call variable-of,$(1))" $(call variable-of,$(2))_LOGINS="$$$(call variable-of,$(1))_LOGINS"

proof-versions: $(VERSIONS:%=proof-version-%) proof-version-sqlite335 # stores, writers, migrations, the command and its scenes, on each further version of a server

# In tests that name a server, the version takes its place: PostgreSQL 15's, MySQL's or MariaDB 10.11's. The variable with the suffix _IS does so for
# the scenes that start servers of their own.
variable-of = ROWRELAY_TEST_$(shell echo $(1) | tr a-z A-Z)
place-of    = $(call variable-of,$(if $(findstring postgres,$(1)),postgres15,$(if $(findstring mariadb,$(1)),mariadb1011,mysql)))

proof-version-%:
	deploy/servers/servers run $* -- sh -c 'go test -timeout 1h ./relay/sqlstore -update && \
		export $(call place-of,$*)="$$$(call variable-of,$*)" $(call place-of,$*)_IS=$* && \
		go test -timeout 1h ./cmd/rowrelay ./migrations ./internal/outboxdb/... && $(call record,-everywhere)'
	go test ./internal/readme -run Fresh -update

# The version of mattn/go-sqlite3 that contains SQLite 3.35. In SQLite before 3.38 the JSON functions are an option, which is a build tag of this driver.
SQLITE335 = github.com/mattn/go-sqlite3@v1.14.7

proof-version-sqlite335: # stores, writers and migrations, on the oldest supported SQLite
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cp go.mod go.sum "$$folder" && \
		go mod edit -replace github.com/rowrelay/rowrelay/outbox=./outbox -replace github.com/mattn/go-sqlite3=$(SQLITE335) "$$folder/go.mod" && \
		export GOWORK=off GOFLAGS="$$(go env GOFLAGS) -mod=mod -modfile=$$folder/go.mod -tags=sqlite_json" && \
		go test -timeout 1h -run '^TestStore$$/^sqlite335$$' ./relay/sqlstore -update && go test -timeout 1h -run '/^sqlite335$$' ./migrations ./internal/outboxdb/...
	go test ./internal/readme -run Fresh -update

proof-sql: # all SQL for SQL Server, by Microsoft's own parser, and for Oracle, by two parsers
	deploy/servers/servers run scriptdom oracleparser -- go test -v -timeout 1h ./internal/grammar

# The driver of Oracle is behind a build tag. With SUITES_OF=writer,store only these suites run.
conformance: ## all suites on a server of yours, and a report: make conformance DSN=sqlserver://user:password@host?database=master
	@test -n "$(DSN)" || { echo "DSN is missing: make conformance DSN=sqlserver://user:password@host?database=master" >&2; exit 2; }
	@mkdir -p bin && go test -v -timeout 12h $(if $(filter oracle:%,$(DSN)),-tags oracle) ./internal/conformance -dsn '$(DSN)' -report '$(CURDIR)/bin/conformance.md' -suites '$(SUITES_OF)'

# The last commit with the schema version before the present one.
PREVIOUS = $(shell git log -1 --format=%H -S'$(shell grep '^const schemaVersion' relay/sqlstore/store.go)' -- relay/sqlstore/store.go)^

# The number of messages of each scene of proof-releases.
RELEASED = 128000

proof-releases: # relays of this release beside relays of the last commit with the previous schema version, through an upgrade and back
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && git archive $(PREVIOUS) | tar -x -C "$$folder" && (cd "$$folder" && go build -o previous ./cmd/rowrelay) && \
		deploy/servers/servers run postgres15 mysql mariadb1011 -- $(call recorded,-run "ReleasesSideBySide" -long -messages $(RELEASED) -previous "'$$folder'/previous")

proof-power: # databases whose power fails, on a disk that loses what was not synced; needs Linux, FUSE and root's rights
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cd internal/powerloss && go test . && go build -o "$$folder/powerloss" . && cd ../.. && \
		deploy/servers/servers run postgres15 mysql mariadb1011 -- $(call recorded,-run "PowerLoss" -long -powerloss "'$$folder'/powerloss" -outages 30)

proof-adopt: # tables of other systems, adopted under load with kills, and what that costs
	deploy/servers/servers run postgres15 mysql mariadb1011 -- go test -v -timeout 2h -run 'AdoptedTables' ./internal/e2e -long

proof-many: # ten million messages, as an operator sees them
	deploy/servers/servers run postgres15 mysql mariadb1011 -- go test -v -timeout 2h -run 'ManyRows' ./internal/e2e -long -rows 10000000

proof-quorum: # a cluster of brokers without its majority, or with nodes that are suspended
	deploy/servers/servers run postgres15 rabbitmq3 -- $(call recorded,-run "QuorumWithoutMajority|SuspendedQuorumNodes" -long)

proof-networks: # relays without their database or broker, though no connection is closed; a cluster of brokers that loses its leaders; as root
	deploy/servers/servers run postgres15 mysql mariadb1011 kafka rabbitmq kafka3 -- \
		env REQUIRE_SERVERS=1 $(call recorded,-parallel 8 -run "RelayWithoutIts|UncleanElection|KilledRelaysAndNodesLoseNothing/kafka" -long)

proof-hour: # an hour of failing keys, a million of them at a takeover
	go test -v -timeout 1h -run 'FailingKeys|MillionBlockedKeys' ./relay -whole-hour

# The time of proof-soak.
SOAK = 25m

proof-soak: # a steady load, while relays are killed and connections are cut, and a snapshot is held open for half of the time
	deploy/servers/servers run postgres15 -- $(call recorded,-timeout 2h -run TestSoak -soak $(SOAK))

proof-model: # a model of the engine, exhaustively, with all guards and without each of them; then 10,000 traces of the engine; needs Rust's cargo and 5 GB of disk
	cd internal/model && CARGO_TARGET_DIR=$(CURDIR)/bin/model cargo run --release --locked --quiet
	traces=$$(mktemp -d) && trap 'rm -rf "$$traces"' EXIT && go test -timeout 1h -run '^TestTraces' ./relay -traces "$$traces" -trace-histories 10000 && \
		cd internal/model && CARGO_TARGET_DIR=$(CURDIR)/bin/model cargo run --release --locked --quiet -- "$$traces"

proof-histories: # the race detector, in all of relay, with all simulated histories and what passes many messages
	go test $(RACE) -timeout 30m -skip 'Find|FailingKeys|MillionBlockedKeys' ./relay -whole-hour -simulations 60

proof-outages: # the race detector, while an endpoint fails in each way
	go test $(RACE) -timeout 30m -run 'ForTenMinutes|OneKeyThroughAnOutage' ./sinks/httpsink -lasting 100

# A minute for each fuzzer. What one finds goes into testdata/fuzz of its package, from where make test runs it.
proof-fuzz: # fuzzers of what comes from tables, files, messages and plug-ins
	status=0; for file in $$(grep -rlE '^func Fuzz' --include=*_test.go cmd internal outbox relay sinks plugins); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$name$$" -fuzztime 60s "./$$(dirname "$$file")" || status=1; done; done; exit $$status

proof-browser: # the race detector, beside a real Chromium
	deploy/servers/servers run postgres15 chromium -- sh -c "cd internal/browser && go test -race -timeout 30m ./..."

proof-tools: # the printed migrations, each applied by its own tool, also those of Java, Node, Python and Ruby; the example with Spring
	deploy/servers/servers run postgres15 postgres18 mariadb1011 mysql kafka -- sh -c "(cd internal/libraries && go test -timeout 1h -run MigrationTools . -tools) && cd examples && go test -timeout 1h -run Spring . -spring"

proof-plugins: # official plug-ins: 100,000 messages each, while plug-ins, relays and servers are killed
	deploy/servers/servers run postgres15 redis-server elasticmq -- sh -c 'for folder in $(PLUGINS); do (cd $$folder && go test -v -timeout 1h -run TestProof . -long) || exit 1; done'

proof-sqlite: # the race detector, also within the SQLite that was translated to Go
	go test -race -timeout 1h -run 'TestStore$$/sqlite/modernc' ./relay/sqlstore

proof-e2e: # the race detector, in the command, and in the scenes with processes of their own
	deploy/servers/servers run -- sh -c "go test $(RACE) $(AT_ONCE) -timeout 30m ./cmd/rowrelay ./internal/readme ./migrations ./internal/outboxdb/... && go test $(RACE) -timeout 30m ./internal/e2e -everywhere"

proof-alerts: # the race detector, in what fires each alert
	deploy/servers/servers run -- sh -c "cd internal/libraries && go test $(RACE) -timeout 30m ./alerts"

bench: ## measures, on the same servers, and records the figures; quarter of an hour; SCENES=drain for one of them
	deploy/servers/servers run -- $(MAKE) --no-print-directory measure

SCENES      = drain peers snapshot kafka rabbitmq latency idle producer plugin growth held
BENCHFLAGS  = -rounds 5

bench-debezium: ## measures beside Debezium on Kafka Connect, which Maven fetches; twenty minutes
	ROWRELAY_SERVERS_FSYNC=on deploy/servers/servers run postgreslogical kafka -- $(MAKE) --no-print-directory measure SCENES=debezium

measure:
	cd bench && go run . $(BENCHFLAGS) -record figures.json $(SCENES)

quick: ## the tests that need no server
	$(NO_SERVERS) go test -short $(TESTFLAGS) $(PACKAGES)

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; }
	go vet $(PACKAGES)
	go vet -tags=gomysql,oracle ./cmd/rowrelay ./internal/testdb
	cd bench && go vet ./...
	cd internal/libraries && go vet ./...
	cd examples && go vet ./...
	cd internal/browser && go vet ./...
	cd internal/powerloss && go vet ./...
	for folder in $(PLUGINS); do (cd $$folder && go vet ./...) || exit 1; done
	go run $(STATICCHECK) $(PACKAGES)

fmt: ## formats all Go files
	gofmt -w .

# go mod tidy takes no word of go.work: the folder stands in for the released
# module meanwhile.
tidy: ## go mod tidy, in all modules
	go mod edit -replace github.com/rowrelay/rowrelay/outbox=./outbox
	GOWORK=off go mod tidy; go mod edit -dropreplace github.com/rowrelay/rowrelay/outbox
	for folder in outbox bench examples deploy/helm internal/libraries internal/browser internal/powerloss $(PLUGINS); do (cd $$folder && go mod tidy) || exit 1; done

generate-check: ## fails if generated files are not fresh
	.ci/generate-check

build: ## the static binary bin/rowrelay
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/rowrelay ./cmd/rowrelay

build-plugins: ## the official plug-ins, bin/rowrelay-plugin-NAME
	for folder in $(PLUGINS); do CGO_ENABLED=0 go build -C $$folder -trimpath \
		-ldflags "-s -w -X github.com/rowrelay/rowrelay/plugins.version=$(VERSION)" -o $(CURDIR)/bin/rowrelay-plugin-$${folder#plugins/} . || exit 1; done

cross: ## the program and the plug-ins for the six platforms of a release, thrown away
	for os in linux darwin windows; do for arch in amd64 arm64; do for main in ./cmd/rowrelay $(PLUGINS); do \
		echo "$$os/$$arch $$main" && CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -C $$main -trimpath -o /dev/null . || exit 1; done; done; done

release-rehearsal: ## tags a copy, and uses its modules, program, image and chart as strangers would; ten minutes
	.ci/release-rehearsal

site: ## the documentation as a site, bin/site
	.ci/site

demo: ## a small shop and a relay, on an embedded database
	go run ./cmd/rowrelay demo

servers-up: ## brings up the tests' servers and leaves them up; then: source .servers/env
	deploy/servers/servers up

servers-down: ## brings them down
	deploy/servers/servers down
