# Starts the servers from deploy/compose.test.yaml, on machines that have Docker but not the
# packages.

compose() {
	SERVER_PORT=${port:-0} SERVER_PASSWORD=${password:-} quietly docker compose \
		-p "rowrelay-test-$name-$(cksum <<<"$root" | cut -d' ' -f1)" -f "$root/deploy/compose.test.yaml" "$@"
}

has_docker() { command -v docker >/dev/null && docker info &>/dev/null; }

start_by_compose() {
	touch "$home.compose"
	if ! compose up --detach --wait "$name"; then
		compose down --volumes || true
		because "docker compose up $name failed"
	fi
}

stop_by_compose() { compose down --volumes; }
