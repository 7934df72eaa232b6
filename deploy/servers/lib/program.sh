# A program, by default the one in the Debian package of the same name. No server runs: the variable has the program's
# path, and each test starts the program itself. A file may redefine get and program.

get() { program >/dev/null || install_packages "$name"; }

# program prints the program's path.
program() { command -v "$name"; }

is_given() { [[ -x ${!variable:-} && ! -s $home.url ]]; }

is_up() { [[ -s $home.url && -x $(<"$home.url") ]]; }

up_one() {
	if is_given || is_up; then return; fi
	rm -f "$home.reason" "$home.missing"
	if get; then
		program >"$home.url"
		say "$name: $(<"$home.url")"
	else
		failed && return 1
	fi
}

status_one() { if is_up; then echo "$name: $(<"$home.url")"; else echo "$name: down"; fi; }

url() { cat "$home.url"; }
