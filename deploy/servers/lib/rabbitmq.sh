# Starts RabbitMQ with one or more nodes. A server's file sets $suite, the release of Debian
# that the programs come from, and $nodes. No package is installed, so nothing starts at boot.
#
# A node has five ports: AMQP, the management API, AMQP over TLS, and two for the connections
# between nodes. The broker's global parameter "rowrelay_test" has everything else that a test
# needs: certificates to connect with, and $dir/ctl, which calls rabbitmqctl.
source "$here/lib/debian.sh"

nodes=1
files=$(cache)/rabbitmq-$suite

url() {
	local node hosts=
	for ((node = 0; node < nodes; node++)); do hosts+=,127.0.0.1:$((port + 5 * node)); done
	echo "amqp://rowrelay:$password@${hosts#,}/"
}

get() { from_debian_relocated "$suite" rabbitmq-server "$files"; }

# needed selects Erlang and the libraries among the packages that apt would install.
needed() { awk '$1 == "Inst" && $2 ~ /^(lib|erlang-)/ && $2 !~ /^libperl/ { print $2 }'; }

# relocate changes Erlang's programs so that they find each other and their libraries where they
# were unpacked.
relocate() {
	local erlang=$files/usr/lib/erlang
	sed -i "s|=/usr/lib/erlang|=$erlang|" "$erlang"/bin/erl "$erlang"/erts-*/bin/erl
	rm -f "$erlang"/erts-*/bin/dyn_erl
	with_own_loader "$files" "$erlang"/{erts-*/bin/{beam.smp,epmd,erlexec,erl_child_setup,inet_gethost},lib/os_mon-*/priv/bin/{memsup,cpu_sup}}
}

start() {
	local node
	port=$(free_ports $((5 * nodes))) && write_home && launch || return
	for ((node = 0; node < nodes; node++)); do
		until_managed $((port + 5 * node + 1)) || { rabbitmq_log && return 1; }
	done
}

# launch starts $dir/run and records its process id, so that it can be stopped even if no node becomes ready.
launch() {
	(cd / && as_nobody bash "$dir/run") </dev/null &>>"$home.log" 8>&- 9>&- &
	until [[ -s $dir/pid ]]; do sleep 0.1; done
	cp "$dir/pid" "$home.pid"
}

# free_ports N prints the first of N consecutive free ports.
free_ports() {
	local first offset
	while first=$(free_port); do
		for ((offset = 1; offset < $1; offset++)); do reserve $((first + offset)) || continue 2; done
		echo "$first" && return
	done
}

# until_managed PORT waits until a node's management API lists the listeners of AMQP, which a node
# starts last.
until_managed() {
	local _
	for _ in $(seq 1500); do
		if management "$1" /api/overview | grep -qs '"protocol":"amqp"'; then return; fi
		sleep 0.2
	done
	return 1
}

management() {
	local login
	login=$(printf 'rowrelay:%s' "$password" | base64 -w 0)
	{
		exec 3<>"/dev/tcp/127.0.0.1/$1" &&
			printf 'GET %s HTTP/1.0\r\nAuthorization: Basic %s\r\n\r\n' "$2" "$login" >&3 && timeout 5 cat <&3
	} 2>/dev/null
}

rabbitmq_log() { cat "$dir"/node*/log >>"$home.log" 2>/dev/null || true; }

source "$here/lib/rabbitmq_home.sh"
