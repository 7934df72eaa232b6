# Apache Kafka, three nodes. A test may kill a node. The folder in the second variable has the file
# NUMBER.pid of each node, and the program "node", which starts a node by its number.
source "$here/lib/kafka.sh"

variable=ROWRELAY_TEST_KAFKA3
by_name=only

url() { sed 's/.*/127.0.0.1:&/' "$dir/ports" | paste -sd,; }

env_line() {
	is_given || printf "export %s='%s'\n" "$variable" "$(<"$home.url")" "${variable}_FOLDER" "$(<"$home.home")"
}

start() {
	local number ports=("$port" "$(free_port)" "$(free_port)") controllers=("$(free_port)" "$(free_port)" "$(free_port)")
	write_node_program 224m && write_keeper && printf '%s\n' "${ports[@]}" >"$dir/ports" || return
	for number in 1 2 3; do kafka3_properties >"$dir/$number.properties"; done
	if is_root; then chown -R "$user" "$dir"; fi
	for number in 1 2 3; do format_node "$number" || return; done
	(cd / && as_nobody "$dir/keeper") </dev/null &>>"$dir/keeper.log" 8>&- 9>&- &
	until [[ -s $dir/keeper.pid ]]; do sleep 0.01; done
	cp "$dir/keeper.pid" "$home.pid"
	for number in 1 2 3; do node_listens "$number" "${ports[number - 1]}" || { kafka_log && return 1; }; done
}

kafka3_properties() {
	local listener="PLAIN://127.0.0.1:${ports[number - 1]},CONTROLLER://127.0.0.1:${controllers[number - 1]}"
	properties "$number" "1@127.0.0.1:${controllers[0]},2@127.0.0.1:${controllers[1]},3@127.0.0.1:${controllers[2]}" "$listener"
	cat <<-PROPERTIES
		listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT
		inter.broker.listener.name=PLAIN
		default.replication.factor=3
		min.insync.replicas=2
		broker.heartbeat.interval.ms=500
		broker.session.timeout.ms=3000
	PROPERTIES
}

# write_keeper writes $dir/keeper, which starts the nodes, and kills them when it is stopped.
write_keeper() {
	cat >"$dir/keeper" <<-KEEPER
		#!/usr/bin/env bash
		trap 'kill -KILL \$(cat "$dir"/[123].pid); exit' TERM
		echo \$\$ >"$dir/keeper.pid"
		for number in 1 2 3; do ("$dir/node" \$number || echo "it ended: \$?") &>>"$dir/\$number.log" & done
		while :; do sleep 3600 & wait \$!; done
	KEEPER
	chmod 755 "$dir/keeper"
}

stop_signal=TERM # to the keeper
