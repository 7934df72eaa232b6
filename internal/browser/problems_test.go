package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/rowrelay/rowrelay/internal/testdb"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// While its server is down, the page does not claim that everything is well.
func TestPageShowsThatItsServerIsDown(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.login()
		s.do("see that nothing is wrong", shows("#problems", "Nothing is wrong."))
		s.dead.Store(true)
		s.do("see that the state is unknown", shows("#problems", "The state is unknown"), shows("#problems", "Everything below is as it was"), gone("#problems .good"),
			until("document.getElementById('state-dot').className === 'dot bad' && document.title.startsWith('●')"))
		s.dead.Store(false)
		s.do("see it again", shows("#problems", "Nothing is wrong."), gone("#gone"))
	})
}

// Pausing a sink or relay that doesn't exist is refused, and the error lists the existing names.
func TestPauseOfAnUnknownSinkIsRefused(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.login()
		for _, kind := range []string{"sink", "relay"} {
			s.do("pause a "+kind+" by a wrong name", shows("#relays", "relay-1"), chromedp.SetValue("#pause [name=kind]", kind), chromedp.SetValue("#pause [name=name]", "biling"), click("#pause", "Pause"),
				shows("#gone", "no relay has this name or sink: known are "+map[string]string{"sink": "billing, ledger, reports", "relay": "relay-1"}[kind]))
		}
		controls, err := s.store.Controls(t.Context())
		if err != nil || len(controls) != 0 {
			t.Errorf("in force are %v, %v", controls, err)
		}
		for body, want := range map[string]int{`{"kind":"sink","name":"biling"}`: 400, `{"kind":"limit","name":"biling","rate":1}`: 400, `{"kind":"limit","name":"billing","rate":1}`: 200, `{"kind":"topic","name":"any"}`: 200} {
			if code := s.post("controls", body); code != want {
				t.Errorf("%s got %d, want %d", body, code, want)
			}
		}
	})
}

// Among hundreds of parked messages, the only one that holds its key is found.
func TestAHeldKeyIsFoundAmongMany(t *testing.T) {
	onDatabases(t, func(t *testing.T, target testdb.Target) {
		s := newScene(t, target)
		s.parkMore("orders", 300, 300)
		s.shop.refuse("held", "no such account")
		s.write(outbox.Message{Topic: "ledger.entry", Key: "account-1", Payload: []byte("held")})
		s.counted(storage.StateError, 301)
		s.login()
		s.do("find it", shows("#problems", "1 key is blocked by a parked message"), click("#problems li:first-child", "Show"), shows("#messages", "account-1"), gone("#messages tbody tr:nth-child(2)"),
			click("#bulk", "Skip"), shows("#preview", "1 message will be skipped"))
	})
}

// post sends a request to the API with the operator's token.
func (s *scene) post(path, body string) int {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), "POST", fmt.Sprint(s.url, "/api/", path), strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+operatorToken)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}
