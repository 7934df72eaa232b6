package kafka

import (
	"testing"

	"github.com/xdg-go/scram"
)

// TestPasswordsAreNotNormalised: SASLprep would drop a soft hyphen. Kafka doesn't,
// and neither does the sink.
func TestPasswordsAreNotNormalised(t *testing.T) {
	t.Parallel()
	const password = "soft\u00adhyphen"
	known, err := scram.SHA256.NewClientUnprepped("user", password, "")
	if err != nil {
		t.Fatal(err)
	}
	credentials := known.GetStoredCredentials(scram.KeyFactors{Salt: "salt", Iters: 4096})
	server, err := scram.SHA256.NewServer(func(string) (scram.StoredCredentials, error) { return credentials, nil })
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]bool{password: true, "softhyphen": false} {
		session, say, err := mechanisms["scram-sha-256"]("user", given).Start(t.Context())
		for done, broker := false, server.NewConversation(); err == nil && !done; {
			var said string
			if said, err = broker.Step(string(say)); err == nil {
				done, say, err = session.Next(t.Context(), []byte(said))
			}
		}
		if (err == nil) != want {
			t.Errorf("%+q: %v", given, err)
		}
	}
	session, _, err := mechanisms["scram-sha-256"]("user", password).Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := session.Next(t.Context(), []byte("r=x,s=c2FsdA==,i=10000000")); err == nil {
		t.Error("the login starts ten million iterations")
	}
}
