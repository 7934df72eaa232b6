package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The admin server's tokens can be in the configuration or in files. Problems don't show the
// tokens.
func TestAdminSettings(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "token"), []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		settings string
		want     Admin
		problem  string // text that the problem must contain
	}{
		"all": {
			"{listen: 8321, reader_token: readers-readers-readers, operator_token_file: token, hosts: [relay.example], payloads: hide, tls: {cert_file: a.pem, key_file: b.pem}}",
			Admin{Listen: "127.0.0.1:8321", ReaderToken: "readers-readers-readers", OperatorToken: "0123456789abcdef", Hosts: []string{"relay.example"}, Payloads: HidePayloads, TLS: AdminTLS{"a.pem", "b.pem"}}, "",
		},
		"traces and names": {
			"{listen: 8321, trace_url: 'https://jaeger.example/trace/{trace_id}', user_header: {name: X-Forwarded-User, trusted_proxies: [10.1.2.3/8, 127.0.0.1, '::1', '::ffff:10.0.0.1']}}",
			Admin{Listen: "127.0.0.1:8321", TraceURL: "https://jaeger.example/trace/{trace_id}", UserHeader: UserHeader{"X-Forwarded-User", []netip.Prefix{
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("10.0.0.1/32")}}}, "",
		},
		"a trace without its id": {"{listen: 8321, trace_url: https://jaeger.example}", Admin{}, "isn't the URL of a trace"},
		"a script as a trace":    {"{listen: 8321, trace_url: 'javascript:alert(\"{trace_id}\")'}", Admin{}, "isn't the URL of a trace"},
		"a name without proxies": {"{listen: 8321, user_header: {name: X-Forwarded-User}}", Admin{}, "admin.user_header: needs both name and trusted_proxies"},
		"proxies without a name": {"{listen: 8321, user_header: {trusted_proxies: [127.0.0.1]}}", Admin{}, "admin.user_header: needs both name and trusted_proxies"},
		"a header with a colon":  {"{listen: 8321, user_header: {name: 'X-User: x', trusted_proxies: [127.0.0.1]}}", Admin{}, "isn't the name of a header"},
		"a proxy by its name":    {"{listen: 8321, user_header: {name: X-User, trusted_proxies: [proxy]}}", Admin{}, "isn't a network or an address"},
		"a short token":          {"{listen: 8321, operator_token: swordfish}", Admin{}, "admin.operator_token: the value isn't a token: it needs at least 16 ASCII characters"},
		"a token with blanks":    {`{listen: 8321, operator_token: "swordfish swordfish"}`, Admin{}, "isn't a token"},
		"one token for both":     {"{listen: 8321, operator_token_file: token, reader_token_file: token}", Admin{}, "admin: has the same token for readers and operators"},
		"half a certificate":     {"{listen: 8321, tls: {cert_file: a.pem}}", Admin{}, "admin.tls: needs both cert_file and key_file"},
		"unknown for payloads":   {"{listen: 8321, payloads: maybe}", Admin{}, "admin.payloads"},
		"no such file":           {"{listen: 8321, reader_token_file: nowhere}", Admin{}, "can't be read"},
		"a misspelled setting":   {"{listen: 8321, operator_tokn: x}", Admin{}, "did you mean operator_token?"},
		"a token and its file":   {"{listen: 8321, reader_token: readers-readers-readers, reader_token_file: token}", Admin{}, "is given together with reader_token"},
		"without an address":     {"{reader_token: readers-readers-readers}", Admin{ReaderToken: "readers-readers-readers"}, ""},
		"nothing but an address": {"{listen: 0.0.0.0:80}", Admin{Listen: "0.0.0.0:80"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := Parse(filepath.Join(folder, "rowrelay.yaml"), []byte(smallest+"admin: "+test.settings+"\n"), allKinds(t))
			c.Admin.secrets = nil
			switch {
			case test.problem == "" && (err != nil || !reflect.DeepEqual(c.Admin, test.want)):
				t.Errorf("got %+v, %v, want %+v", c.Admin, err, test.want)
			case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
				t.Errorf("got %v, want %s", err, test.problem)
			case err != nil && strings.Contains(err.Error(), "swordfish"):
				t.Errorf("the problem repeats a token: %v", err)
			}
		})
	}
}
