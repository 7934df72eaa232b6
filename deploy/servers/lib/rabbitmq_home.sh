# The files of a RabbitMQ server: certificates, the broker's initial definitions, a configuration for
# each node, and two scripts, run and ctl.

write_home() {
	local node
	(
		umask 077
		quietly certificates && new_password >"$dir/.erlang.cookie" && chmod 400 "$dir/.erlang.cookie" && definitions >"$dir/definitions.json"
		echo "[rabbitmq_management,rabbitmq_auth_mechanism_ssl]." >"$dir/plugins"
		ctl_script >"$dir/ctl" && run_script >"$dir/run" && chmod 700 "$dir/ctl"
		for ((node = 0; node < nodes; node++)); do mkdir "$dir/node$node" && configuration "$node" >"$dir/node$node/rabbitmq.conf"; done
	) && if is_root; then chown -R "$user" "$dir"; fi
}

# certificates creates the certificates of an authority, of the server, and of a client. The client's
# certificate has the name of the broker's user rowrelay.
certificates() {
	cd "$dir"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 -subj /CN=authority -keyout ca.key -out ca.pem
	certificate server localhost "subjectAltName=DNS:localhost,IP:127.0.0.1"
	certificate client rowrelay extendedKeyUsage=clientAuth
}

# certificate FILE NAME EXTENSION
certificate() {
	openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=$2" -keyout "$1.key" -out "$1.csr"
	openssl x509 -req -days 365 -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -extfile <(echo "$3") -out "$1.pem"
}

definitions() {
	cat <<-JSON
		{"vhosts": [{"name": "/"}],
		 "users": [{"name": "rowrelay", "password": "$password", "tags": "administrator"}],
		 "permissions": [{"user": "rowrelay", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
		 "global_parameters": [{"name": "rowrelay_test", "value": {
			"ca": "$(one_line ca.pem)", "certificate": "$(one_line client.pem)", "key": "$(one_line client.key)",
			"ctl": "$dir/ctl"}}]}
	JSON
}

one_line() { awk '{ printf "%s\\n", $0 }' "$dir/$1"; }

configuration() {
	local first=$((port + 5 * $1)) peer
	cat <<-CONF
		listeners.tcp.1 = 127.0.0.1:$first
		management.tcp.ip = 127.0.0.1
		management.tcp.port = $((first + 1))
		listeners.ssl.1 = 127.0.0.1:$((first + 2))
		ssl_options.cacertfile = $dir/ca.pem
		ssl_options.certfile = $dir/server.pem
		ssl_options.keyfile = $dir/server.key
		ssl_options.verify = verify_peer
		ssl_options.fail_if_no_peer_cert = false
		ssl_cert_login_from = common_name
		auth_mechanisms.1 = PLAIN
		auth_mechanisms.2 = EXTERNAL
		load_definitions = $dir/definitions.json
		log.file = false
		log.console = true
		log.console.level = warning
	CONF
	if [[ $nodes -eq 1 ]]; then return; fi
	echo "cluster_formation.peer_discovery_backend = classic_config"
	for ((peer = 0; peer < nodes; peer++)); do echo "cluster_formation.classic_config.nodes.$((peer + 1)) = node$peer@localhost"; done
}

# ctl_script prints the script ctl. ctl NODE ARGUMENT… calls rabbitmqctl for that node; ctl NODE boot
# runs the node.
ctl_script() {
	cat <<-SCRIPT
		#!/bin/bash
		node=\$1 first=\$(($port + 5 * \$1)) && shift
		export HOME=$dir PATH=$files/usr/lib/erlang/bin:\$PATH ERL_EPMD_PORT=$((port + 4)) ERL_EPMD_ADDRESS=127.0.0.1
		export RABBITMQ_NODENAME=node\$node@localhost RABBITMQ_DIST_PORT=\$((first + 3)) RABBITMQ_CONF_ENV_FILE=/dev/null
		export RABBITMQ_CONFIG_FILE=$dir/node\$node/rabbitmq RABBITMQ_ENABLED_PLUGINS_FILE=$dir/plugins
		export RABBITMQ_MNESIA_BASE=$dir/node\$node/data RABBITMQ_LOG_BASE=$dir/node\$node
		export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}"
		export RABBITMQ_CTL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}" RABBITMQ_ALLOW_INPUT=
		programs=\$(echo $files/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin)
		[[ \$1 == boot ]] || exec "\$programs/rabbitmqctl" "\$@"
		echo \$\$ >$dir/node\$node.pid
		NOTIFY_SOCKET= detached=yes exec "\$programs/rabbitmq-server" >>$dir/node\$node/log 2>&1
	SCRIPT
}

# run_script prints the script run. It starts the first node, then the others, which join it. When it is
# stopped it kills the nodes, because their data are deleted.
run_script() {
	cat <<-SCRIPT
		#!/bin/bash
		cd $dir && echo \$\$ >pid
		trap 'kill -KILL \$(cat node*.pid) \$epmd 2>/dev/null; exit' TERM
		ERL_EPMD_PORT=$((port + 4)) ERL_EPMD_ADDRESS=127.0.0.1 $files/usr/lib/erlang/bin/epmd & epmd=\$!
		./ctl 0 boot &
		for ((node = 1; node < $nodes; node++)); do
			until (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do sleep 0.2; done
			./ctl \$node boot &
		done
		while :; do wait; sleep 3600 & wait \$!; done
	SCRIPT
}
