package deadcmd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
)

// TestManyLettersNeedYes shows that a requeue of more letters than unconfirmed needs --yes.
func TestManyLettersNeedYes(t *testing.T) {
	b := membroker.New()
	api, err := inspect.New(inspect.Config{Broker: b})
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) {
		if err := b.PutDead(t.Context(), "work", broker.Dead{Message: &broker.Message{ID: id, ContentType: "text/plain"}, Reason: "why"}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range unconfirmed {
		put(fmt.Sprint(i))
	}
	allow := func(reason string, limit int, yes bool) error {
		f := selection{inspect.DeadFilter{Queue: "work", Error: reason}, limit}
		return (&bulkFlags{yes: yes}).allow(t.Context(), api, &f)
	}
	if err := allow("", 0, false); err != nil {
		t.Errorf("with %d letters: %v", unconfirmed, err)
	}
	put("one more")
	for _, c := range []struct {
		reason  string
		limit   int
		yes, ok bool
	}{
		{"", 0, false, false},
		{"", unconfirmed + 1, false, false},
		{"", unconfirmed, false, true},
		{"other", 0, false, true},
		{"", 0, true, true},
	} {
		if err := allow(c.reason, c.limit, c.yes); (err == nil) != c.ok || err != nil && !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
