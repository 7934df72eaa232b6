# Starts one node of Apache Kafka. Besides the plain listener it has listeners that require a
# login or certificates; a second variable has their addresses. A server's file sets $variable.
source "$here/lib/kafka.sh"

authorizer=org.apache.kafka.metadata.authorizer.StandardAuthorizer

url() { echo "127.0.0.1:$port"; }

start() { start_one_node; }

start_one_node() {
	local controller login brief tls mtls secure bearer front=() behind=()
	controller=$(free_port) login=$(free_port) brief=$(free_port) tls=$(free_port) mtls=$(free_port) secure=$(free_port) bearer=$(free_port)
	front=("$(free_port)" "$(free_port)") behind=("$(free_port)" "$(free_port)")
	write_node_program 256m && write_tool_program && certificates && kafka_properties >"$dir/1.properties" && logins >"$dir/logins" || return
	if is_root; then chown -R "$user" "$dir"; fi
	format || return
	start_node 1
	node_listens 1 "$port" && cp "$dir/1.pid" "$home.pid" || { kafka_log && return 1; }
}

# format creates the node's empty log with the user rowrelay.
format() {
	format_node 1 --add-scram "SCRAM-SHA-256=[name=rowrelay,password=$password]" \
		--add-scram "SCRAM-SHA-512=[name=rowrelay,password=$password]"
}

# logins prints the value of the second variable: a query string with the other listeners' addresses, the folder that has the
# certificates and the program "tool", and the password of the users rowrelay and guest. Guest may do anything that no access rule
# forbids. Logins at the listener brief expire after three seconds. At the listener oauthbearer, clients log in with unsigned
# tokens. The listener behind-front tells clients to connect to the address front, and behind-front2 to front2. A test may listen
# at these addresses and cut connections.
logins() {
	echo "login=127.0.0.1:$login&brief=127.0.0.1:$brief&tls=127.0.0.1:$tls&mtls=127.0.0.1:$mtls&secure=127.0.0.1:$secure&oauthbearer=127.0.0.1:$bearer$(fronts)&folder=$dir&password=$password"
}

fronts() {
	echo "&front=127.0.0.1:${front[0]}&behind-front=127.0.0.1:${behind[0]}&front2=127.0.0.1:${front[1]}&behind-front2=127.0.0.1:${behind[1]}"
}

env_line() {
	is_given || printf "export %s='%s'\n" "$variable" "$(<"$home.url")" \
		"${variable}_LOGINS" "$(<"$(<"$home.home")/logins")"
}

kafka_properties() {
	local name plain=org.apache.kafka.common.security.plain.PlainLoginModule scram=org.apache.kafka.common.security.scram.ScramLoginModule
	local listeners="PLAIN://127.0.0.1:$port,LOGIN://127.0.0.1:$login,BRIEF://127.0.0.1:$brief,TLS://127.0.0.1:$tls,MTLS://127.0.0.1:$mtls,SECURE://127.0.0.1:$secure,BEARER://127.0.0.1:$bearer"
	properties 1 "1@127.0.0.1:$controller" "CONTROLLER://127.0.0.1:$controller,$listeners,FRONT://127.0.0.1:${behind[0]},FRONT2://127.0.0.1:${behind[1]}"
	cat <<-PROPERTIES
		advertised.listeners=$listeners,FRONT://127.0.0.1:${front[0]},FRONT2://127.0.0.1:${front[1]}
		listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAIN:PLAINTEXT,FRONT:PLAINTEXT,FRONT2:PLAINTEXT,LOGIN:SASL_PLAINTEXT,BRIEF:SASL_PLAINTEXT,TLS:SSL,MTLS:SSL,SECURE:SASL_SSL,BEARER:SASL_PLAINTEXT
		inter.broker.listener.name=PLAIN
		offsets.topic.replication.factor=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		share.coordinator.state.topic.replication.factor=1
		share.coordinator.state.topic.min.isr=1
		ssl.keystore.type=PEM
		ssl.keystore.location=$dir/server.pem
		ssl.truststore.type=PEM
		ssl.truststore.location=$dir/ca.pem
		listener.name.mtls.ssl.client.auth=required
		listener.name.brief.connections.max.reauth.ms=3000
		sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
		listener.name.bearer.sasl.enabled.mechanisms=OAUTHBEARER
		listener.name.bearer.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="rowrelay";
		authorizer.class.name=$authorizer
		allow.everyone.if.no.acl.found=true
		super.users=User:ANONYMOUS;User:rowrelay
	PROPERTIES
	for name in login brief secure; do
		echo "listener.name.$name.plain.sasl.jaas.config=$plain required user_rowrelay=\"$password\" user_guest=\"$password\";"
		echo "listener.name.$name.scram-sha-256.sasl.jaas.config=$scram required;"
		echo "listener.name.$name.scram-sha-512.sasl.jaas.config=$scram required;"
	done
}

# certificates creates a certificate authority for the tests, and with it two certificates: one for the server
# (localhost and 127.0.0.1), and one for a client.
certificates() (
	cd "$dir" && quiet_openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=rowrelay-test \
		-keyout ca.key -out ca.pem && certificate server && certificate client && cat server.key >>server.pem
)

# certificate NAME writes NAME.pem and NAME.key.
certificate() {
	quiet_openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" &&
		quiet_openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 \
			-extfile <(echo "subjectAltName=DNS:localhost,IP:127.0.0.1") -out "$1.pem"
}

quiet_openssl() { openssl "$@" 2>>"$home.log"; }
