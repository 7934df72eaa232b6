# A program of Debian's package with the same name. Nothing runs: each test starts one of its own, and
# is told where the program is.

is_given() { [[ -x ${!variable:-} && ! -s $home.url ]]; }

is_up() { [[ -s $home.url && -x $(<"$home.url") ]]; }

up_one() {
	if is_given || is_up; then return; fi
	rm -f "$home.reason" "$home.missing"
	if command -v "$name" >/dev/null || install_packages "$name"; then
		command -v "$name" >"$home.url"
		say "$name: $(<"$home.url")"
	else
		failed && return 1
	fi
}

status_one() { if is_up; then echo "$name: $(<"$home.url")"; else echo "$name: down"; fi; }

url() { cat "$home.url"; }
