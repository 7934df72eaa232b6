# The commands for working on rowrelay. CONTRIBUTING.md explains them.

STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
VERSION      = $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
TESTFLAGS    = -timeout 60m
PACKAGES     = ./... ./outbox/...

# The flags for the race detector. It leaves out packages that only compute: the SQLite that was translated from C to Go
# (the C code has no goroutines, and the tests would be five times as slow), ciphers and hashes (a login computes thousands
# of them), and regular expressions. It also leaves out the Kafka client franz-go, which only tests use here. franz-go has a data
# race on the id of its session if it is closed while it starts to read.
RACE         = -race $(foreach other,modernc.org crypto/internal regexp github.com/twmb/franz-go/pkg/kgo,'-gcflags=$(other)/...=-race=false')

# Settings that make short-lived test programs cheaper. They are linked without debug information, and not vetted, because make lint
# does that. SQLite's C code isn't optimized, because optimizing it takes longer than running the tests. The programs and the
# compiler collect garbage a tenth as often, because garbage collection took a third of their time.
CHEAP        = env GOGC=1000 GOMEMLIMIT=1500MiB GOFLAGS="$$(go env GOFLAGS) -vet=off -ldflags=-s" CGO_CFLAGS=-O0 ROWRELAY_SERVERS_IN_MEMORY=on

# Run more tests and packages concurrently than there are cores, because many tests wait for leases and servers.
AT_ONCE      = -p 4 -parallel 4

# The flags for a second MySQL driver. Both drivers register themselves as "mysql", so the linker gives this one another
# name. The second driver may close a connection that it is still writing to, so it can't be tested with the race detector.
SECOND_MYSQL = -tags=gomysql -ldflags=-X=github.com/go-mysql-org/go-mysql/driver.driverName=gomysql

# Removes the servers' variables from the environment of a command.
NO_SERVERS = env $$(env | sed -n 's/^\(ROWRELAY_TEST_[A-Z0-9_]*\)=.*/-u \1/p') -u REQUIRE_SERVERS

# The suites of make test. Each suite is one call of go test.
SUITES = $(addprefix on-servers-,race store-race store scenes histories relay command libraries alerts examples bench helm browser) $(PLUGIN_SUITES)

# The official plug-ins. Each is a module of its own.
PLUGINS       = $(patsubst %/go.mod,%,$(wildcard plugins/*/go.mod))
PLUGIN_SUITES = $(PLUGINS:plugins/%=on-servers-plugin-%)

# The parts of make proof.
PROOFS = plans adopt pairs $(VERSIONS:%=version-%) version-sqlite335 brokers sql releases failovers power backlog scenes topologies messages $(MANY:%=many-%) quorum networks hour soak model traces histories outages fuzz sqlite e2e alerts browser tools plugins

# If a target fails, the others still run, and then make fails.
MAKEFLAGS += --keep-going

.DEFAULT_GOAL := help
.PHONY: conformance proof-brokers help test on-servers on-servers-store on-servers-stores-and-scenes $(SUITES) proof proof-check proof-versions $(PROOFS:%=proof-%) quick bench measure lint fmt tidy generate-check build build-plugins cross site release-rehearsal demo servers-up servers-down

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

test: ## all tests, with the race detector, against real servers that it starts and stops
	$(CHEAP) sh -c '$(COMPILE) & exec deploy/servers/servers run -- $(MAKE) --no-print-directory on-servers'

# Several tests build the command concurrently. Building it once before them, while the servers start, fills the build cache.
COMPILE = go build -o /dev/null ./cmd/rowrelay

# run runs go test with the given flags, and prints its output while it runs. Each line begins with the suite's name.
run = $(CURDIR)/bin/testrun $(@:on-servers-%=%) $(1) -shuffle=on $(TESTFLAGS)

# tests runs go test for the packages that the arguments of grep select. The second argument has more flags of go test.
tests = packages=$$(go list $(PACKAGES)) && echo "$$packages" | grep $(1) | xargs -r $(call run,$(2))

# Scenes (the tests of internal/e2e) wait most of the time, so more of them run concurrently.
SCENES_AT_ONCE = -parallel 6

# Packages for which the race detector is of little use: the command, which only calls the libraries, and packages whose tests
# mostly run SQL in the database.
WITHOUT_RACE = -e /cmd/rowrelay$$ -e /internal/adopt$$ -e /internal/readme$$ -e /migrations$$ -e /internal/outboxdb$$ -e /internal/outboxdb/inbox$$
PROCESSES = -e /internal/e2e$$
ENGINE = -e /relay$$
STORES = -e /relay/sqlstore$$

# Tests that compute for long run without the race detector here, because it makes them five to ten times as slow. make proof runs
# them with the race detector. They are the scenes with separate processes, the tests of the command, of adopt and of writers, the tests of
# relay except its simulated histories, and the store's checks on all servers except one. At the end on-servers prints the closing
# lines of all suites, those of failed suites last.
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

# The scenes run after the stores' tests, because scenes keep transactions open for long. While such a transaction is open, the safe
# id (up to which no new row can appear) of all tables of its server doesn't rise.
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

# The number of rows that wait for a sink that is down, the interval of sweeps, how often a server loses its last second of
# commits, and the number of rows of 1 MiB.
PROOF = -backlog 12000000 -sweep 10m -rounds 5 -large-rows 1500

proof: ## longer proofs that start their own servers: failovers, crashes, a backlog of 12 million; takes hours; one part: make proof-hour
	.ci/proof $(PROOFS)

# The folder for the histories that the parts of make proof write. record runs scenes, and then judges their histories with both
# programs (in Go and in Python).
HISTORIES = $(CURDIR)/bin/proof
record    = rm -rf "$(HISTORIES)/$@" && go test -v -timeout 30m ./internal/e2e -proof "$(HISTORIES)/$@" $(1) && go run ./internal/proof/judge "$(HISTORIES)/$@"
recorded  = sh -c '$(call record,$(1))'

proof-check: # judges the existing histories again, with the programs in Go and in Python
	go run ./internal/proof/judge $(wildcard $(HISTORIES)/*)

proof-plans: # the plans that PostgreSQL chooses for a table with a million rows
	deploy/servers/servers run postgres15 postgres18 -- go test -v -run 'TestPlans$$' ./relay/sqlstore -planned-rows 700000

proof-pairs: # the tests of the stores, on each server with each of its drivers
	$(CHEAP) deploy/servers/servers run postgres15 postgres18 mariadb1011 mariadb105 mysql -- go test $(RACE) -timeout 2h ./relay/sqlstore -pairs
	deploy/servers/servers run mariadb1011 -- go test $(SECOND_MYSQL) -timeout 1h -run 'TestStore$$/mariadb1011/gomysql|TestMySQLSettings/mariadb1011' ./relay/sqlstore ./cmd/rowrelay

proof-failovers: # failovers, and servers that lose their last second of commits
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

# The versions of servers that make test doesn't use.
VERSIONS = postgres13 postgres14 postgres16 postgres17 postgres19 mysql80 mariadb114 mariadb118

# All versions of brokers: those that make test uses, and others.
BROKERS = kafka28 kafka39 kafka kafka44 rabbitmq rabbitmq4 rabbitmq43

proof-brokers: $(BROKERS:%=proof-broker-%) # the tests of the sinks for Kafka and RabbitMQ, and one scene, on each version of the brokers

# If their server can't be started, these parts fail, or do nothing if the server is optional. Their tests skip all other servers.
only-this = unset REQUIRE_SERVERS; test -n "$$$(call variable-of,$*)" || exit 0

proof-broker-%:
	REQUIRE_SERVERS=1 deploy/servers/servers run $* postgres15 -- sh -c '$(only-this); export $(call in-place,$*,$(sink-of)) && go test -timeout 30m ./sinks/$(sink-of) && \
		$(call record,-run "KillsAndCuts/^$(sink-of)")'

# The sink for a version of a broker: kafka or rabbitmq.
sink-of = $(if $(findstring kafka,$*),kafka,rabbitmq)

# Assignments that give the environment variables of the server $(2) the values of the server $(1), so that tests use $(1) instead.
in-place = $(call variable-of,$(2))="$$$(call variable-of,$(1))" $(call variable-of,$(2))_LOGINS="$$$(call variable-of,$(1))_LOGINS"

proof-versions: $(VERSIONS:%=proof-version-%) proof-version-sqlite335 # the tests of stores, writers, migrations and the command, and the scenes, on each of VERSIONS

# Tests use PostgreSQL 15, MySQL and MariaDB 10.11 by name. place-of is the environment variable of the server that the tested version
# replaces. For scenes that start their own servers, the variable with the suffix _IS has the tested version's name.
variable-of = ROWRELAY_TEST_$(shell echo $(1) | tr a-z A-Z)
place-of    = $(call variable-of,$(if $(findstring postgres,$(1)),postgres15,$(if $(findstring mariadb,$(1)),mariadb1011,mysql)))

proof-version-%:
	REQUIRE_SERVERS=1 deploy/servers/servers run $* -- sh -c '$(only-this); go test -timeout 1h ./relay/sqlstore -update && \
		export $(call place-of,$*)="$$$(call variable-of,$*)" $(call place-of,$*)_IS=$* && \
		go test -timeout 1h ./cmd/rowrelay ./migrations ./internal/outboxdb/... && $(call record,-everywhere)'
	go test ./internal/readme -run Fresh -update

# The version of mattn/go-sqlite3 that contains SQLite 3.35. Before SQLite 3.38 the JSON functions were optional, so the driver needs a build tag for them.
SQLITE335 = github.com/mattn/go-sqlite3@v1.14.7

proof-version-sqlite335: # the tests of stores, writers and migrations, on the oldest supported SQLite
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cp go.mod go.sum "$$folder" && \
		go mod edit -replace github.com/rowrelay/rowrelay/outbox=./outbox -replace github.com/mattn/go-sqlite3=$(SQLITE335) "$$folder/go.mod" && \
		export GOWORK=off GOFLAGS="$$(go env GOFLAGS) -mod=mod -modfile=$$folder/go.mod -tags=sqlite_json" && \
		go test -timeout 1h -run '^TestStore$$/^sqlite335$$' ./relay/sqlstore -update && go test -timeout 1h -run '/^sqlite335$$' ./migrations ./internal/outboxdb/...
	go test ./internal/readme -run Fresh -update

proof-sql: # parses all SQL for SQL Server with Microsoft's parser, and all SQL for Oracle with two parsers
	deploy/servers/servers run scriptdom oracleparser -- go test -v -timeout 1h ./internal/grammar

# Oracle's driver needs a build tag. SUITES_OF=writer,store runs only these suites.
conformance: ## all suites on your own server, with a report: make conformance DSN=sqlserver://user:password@host?database=master
	@test -n "$(DSN)" || { echo "DSN is missing: make conformance DSN=sqlserver://user:password@host?database=master" >&2; exit 2; }
	@mkdir -p bin && go test -v -timeout 12h $(if $(filter oracle:%,$(DSN)),-tags oracle) ./internal/conformance -dsn '$(DSN)' -report '$(CURDIR)/bin/conformance.md' -suites '$(SUITES_OF)'

# The last commit with the previous schema version.
PREVIOUS = $(shell git log -1 --format=%H -S'$(shell grep '^const schemaVersion' relay/sqlstore/store.go)' -- relay/sqlstore/store.go)^

# The number of messages of each scene of proof-releases.
RELEASED = 128000

proof-releases: # relays of this release and of the last commit with the previous schema version on one table, during an upgrade and its rollback
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && git archive $(PREVIOUS) | tar -x -C "$$folder" && (cd "$$folder" && go build -o previous ./cmd/rowrelay) && \
		deploy/servers/servers run postgres15 mysql mariadb1011 -- $(call recorded,-run "ReleasesSideBySide" -long -messages $(RELEASED) -previous "'$$folder'/previous")

proof-power: # power failures of databases whose disk loses what was not synced; needs Linux, FUSE and root
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && cd internal/powerloss && go test . && go build -o "$$folder/powerloss" . && cd ../.. && \
		deploy/servers/servers run postgres15 mysql mariadb1011 -- $(call recorded,-run "PowerLoss" -long -powerloss "'$$folder'/powerloss" -outages 30)

proof-adopt: # adopts tables of other systems under load, while processes are killed, and measures the costs
	deploy/servers/servers run postgres15 mysql mariadb1011 -- go test -v -timeout 2h $(SCENES_AT_ONCE) -run 'AdoptedTables' ./internal/e2e -long

# The databases of proof-many.
MANY = postgres15 mysql mariadb1011 sqlite

proof-many: $(MANY:%=proof-many-%) # an operator's commands and the admin page with ten million messages, on each of MANY

proof-many-%:
	deploy/servers/servers run $(filter-out sqlite,$*) -- go test -v -timeout 2h -run 'ManyRows/^$*$$' ./internal/e2e -long -rows 10000000

proof-quorum: # a RabbitMQ cluster that has lost its majority, or whose nodes are suspended
	deploy/servers/servers run postgres15 rabbitmq3 -- $(call recorded,-run "QuorumWithoutMajority|SuspendedQuorumNodes" -long)

# An unclean election loses messages that the broker has confirmed. The programs that judge histories would report these messages as
# lost, so its test writes no history and checks the result itself.
proof-networks: # networks that drop a relay's packets to its database or broker without closing connections, and a Kafka cluster that loses its leaders; needs root
	deploy/servers/servers run postgres15 mysql mariadb1011 kafka rabbitmq kafka3 -- \
		env REQUIRE_SERVERS=1 sh -c 'go test -v -timeout 30m -run UncleanElection ./internal/e2e -long && $(call record,-parallel 8 -run "RelayWithoutIts|KilledRelaysAndNodesLoseNothing/kafka" -long)'

proof-hour: # a simulated hour in which keys fail, and a takeover with a million blocked keys
	go test -v -timeout 1h -run 'FailingKeys|MillionBlockedKeys' ./relay -whole-hour

# The duration of proof-soak.
SOAK = 25m

proof-soak: # a steady load, while relays are killed and connections are cut, and a snapshot is held open for half of the time
	deploy/servers/servers run postgres15 -- $(call recorded,-timeout 2h -run TestSoak -soak $(SOAK))

proof-model: # checks all states of a model of the engine, with all guards and without each of them; needs cargo
	cd internal/model && CARGO_TARGET_DIR=$(CURDIR)/bin/model cargo run --release --locked --quiet

proof-traces: # replays 10,000 traces of the simulation and 150 of chaos runs on databases in the model; needs cargo and 5 GB of disk
	traces=$$(mktemp -d) && trap 'rm -rf "$$traces"' EXIT && go test -timeout 1h -run '^TestTraces(OfMutants)?$$' ./relay -traces "$$traces" -trace-histories 10000 && \
		deploy/servers/servers run postgres15 mariadb1011 mysql -- go test -timeout 30m -parallel 16 -run '^TestTracesOfDatabases' ./relay -traces "$$traces" && \
		cd internal/model && CARGO_TARGET_DIR=$(CURDIR)/bin/model cargo run --release --locked --quiet -- "$$traces"

proof-histories: # all tests of relay with the race detector, including all simulated histories and the tests with many messages
	go test $(RACE) -timeout 30m -skip 'Find|FailingKeys|MillionBlockedKeys' ./relay -whole-hour -simulations 60

proof-outages: # an HTTP endpoint that fails in each possible way, for up to a day
	go test -timeout 30m -run 'ForTenMinutes|OneKeyThroughAnOutage' ./sinks/httpsink -lasting 100

# Each fuzzer runs for a minute. It writes failing inputs into testdata/fuzz of its package, and make test then uses them, too.
proof-fuzz: # the fuzzers of the parsers for data from tables, files, messages and plug-ins
	status=0; for file in $$(grep -rlE '^func Fuzz' --include=*_test.go cmd internal outbox relay sinks plugins); do \
		for name in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$name$$" -fuzztime 60s "./$$(dirname "$$file")" || status=1; done; done; exit $$status

proof-browser: # the tests of the admin page in a real Chromium, with the race detector
	deploy/servers/servers run postgres15 chromium -- sh -c "cd internal/browser && go test -race -timeout 30m ./..."

proof-tools: # the printed migrations, applied by each migration tool (Go, Java, Node, Python and Ruby), and the example with Spring; needs the Debian packages ruby-activerecord, ruby-pg and ruby-sqlite3
	deploy/servers/servers run postgres15 postgres18 mariadb1011 mysql kafka -- sh -c "(cd internal/libraries && go test -timeout 1h -run MigrationTools . -tools) && cd examples && go test -timeout 1h -run Spring . -spring"

proof-plugins: # 100,000 messages through each official plug-in, while plug-ins, relays and servers are killed
	deploy/servers/servers run postgres15 redis-server elasticmq -- sh -c 'status=0; for folder in $(PLUGINS); do (cd $$folder && go test -v -timeout 30m -run TestProof . -long) || status=1; done; exit $$status'

proof-sqlite: # the store on SQLite, with the race detector also inside the SQLite that was translated to Go
	go test -race -timeout 1h -run 'TestStore$$/sqlite/modernc' ./relay/sqlstore

proof-e2e: # the tests of the command and the scenes with separate processes, with the race detector
	deploy/servers/servers run -- sh -c "go test $(RACE) $(AT_ONCE) -timeout 30m ./cmd/rowrelay ./internal/adopt ./internal/readme ./migrations ./internal/outboxdb/... && go test $(RACE) -timeout 30m ./internal/e2e -everywhere"

proof-alerts: # the tests that make each alert fire, with the race detector
	deploy/servers/servers run -- sh -c "cd internal/libraries && go test $(RACE) -timeout 30m ./alerts"

bench: ## runs the benchmarks on the tests' servers and records the figures; takes 15 minutes; SCENES=drain selects one scene
	deploy/servers/servers run -- $(MAKE) --no-print-directory measure

SCENES      = drain peers snapshot kafka rabbitmq latency idle producer plugin growth held
BENCHFLAGS  = -rounds 5

bench-debezium: ## compares rowrelay with Debezium on Kafka Connect, which Maven downloads; takes 20 minutes
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

# go mod tidy ignores go.work. So during the call the target replaces the released module outbox with the folder.
tidy: ## go mod tidy, in all modules
	go mod edit -replace github.com/rowrelay/rowrelay/outbox=./outbox
	GOWORK=off go mod tidy; go mod edit -dropreplace github.com/rowrelay/rowrelay/outbox
	for folder in outbox bench examples deploy/helm internal/libraries internal/browser internal/powerloss $(PLUGINS); do (cd $$folder && go mod tidy) || exit 1; done

generate-check: ## fails if generated files are out of date
	.ci/generate-check

build: ## the static binary bin/rowrelay
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/rowrelay ./cmd/rowrelay

build-plugins: ## the official plug-ins, bin/rowrelay-plugin-NAME
	for folder in $(PLUGINS); do CGO_ENABLED=0 go build -C $$folder -trimpath \
		-ldflags "-s -w -X github.com/rowrelay/rowrelay/plugins.version=$(VERSION)" -o $(CURDIR)/bin/rowrelay-plugin-$${folder#plugins/} . || exit 1; done

cross: ## compiles the program and the plug-ins for the six platforms of a release, and keeps nothing
	for os in linux darwin windows; do for arch in amd64 arm64; do for main in ./cmd/rowrelay $(PLUGINS); do \
		echo "$$os/$$arch $$main" && CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -C $$main -trimpath -o /dev/null . || exit 1; done; done; done

release-rehearsal: ## tags a copy of the repository, and uses its modules, program, image and chart as users would; takes ten minutes
	.ci/release-rehearsal

site: ## builds the documentation as a web site in bin/site
	.ci/site

demo: ## runs a small shop and a relay on an embedded database
	go run ./cmd/rowrelay demo

servers-up: ## starts the tests' servers and leaves them running; then run: source .servers/env
	deploy/servers/servers up

servers-down: ## stops the tests' servers
	deploy/servers/servers down
