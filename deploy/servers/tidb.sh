# TiDB, one server with its rows in its own process, built of its Go module: that
# takes a quarter of an hour and some gigabytes, once. It asks for no password.
variable=ROWRELAY_TEST_TIDB
by_name=only
optional=yes
stop_signal=KILL # at once: the data are thrown away
module=github.com/pingcap/tidb
commit=20241125141335-ec8b81b98edc # between 8.4 and 8.5
files=$(cache)/tidb-$commit

get() {
	[[ ! -x $files/tidb-server ]] || return 0
	command -v go >/dev/null || because "go isn't there to build it" || return
	build >>"$home.log" 2>&1 || because "it can't be built"
}

# build: the module wants its parser, a module of its own, in a folder of its tree.
build() {
	local aside
	mkdir -p "${files%/*}" && aside=$(mktemp -d "$files.XXXXXX") || return
	copy_module "$module@v1.1.0-beta.0.$commit" "$aside/source" && copy_module "$module/pkg/parser@v0.0.0-$commit" "$aside/source/pkg/parser" &&
		(cd "$aside/source" && go build -o ../tidb-server ./cmd/tidb-server) && rm -rf -- "$aside/source" &&
		chmod 755 "$aside" && mv -T "$aside" "$files" || { rm -rf -- "$aside" && [[ -d $files ]]; }
}

# copy_module MODULE@VERSION TARGET. Go checks it against its database of sums.
copy_module() {
	local folder
	folder=$(cd / && go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p') && cp -r --no-preserve=mode "$folder" "$2"
}

start() {
	mkdir "$dir/data" && if is_root; then chown "$user" "$dir/data"; fi
	quietly launch && until_answered
}

# What stays in the background is no shell: that would hold what quietly lets go.
launch() {
	(
		exec $(if is_root; then echo "runuser -u $user --"; fi) "$files/tidb-server" -store unistore -path "$dir/data" \
			-host 127.0.0.1 -P "$port" -socket "$dir/socket" -report-status=false -log-file "$dir/data/log" </dev/null
	) &
}

until_answered() {
	local _
	for _ in $(seq 600); do
		pgrep -nf -- "-path $dir/data" >"$home.pid" || true
		! answers 127.0.0.1 "$port" || return 0
		sleep 0.1
	done
	return 1
}

url() { echo "mysql://root:@127.0.0.1:$port/"; }
