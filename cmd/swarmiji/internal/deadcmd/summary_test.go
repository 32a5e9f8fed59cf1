package deadcmd

import (
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/deadletter"
)

// TestManyLettersNeedYes shows that a requeue of more letters than unconfirmed needs --yes.
func TestManyLettersNeedYes(t *testing.T) {
	b := membroker.New()
	l, err := deadletter.New(deadletter.Config{Broker: b})
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
	allow := func(f deadletter.Filter, yes bool) error {
		return (&bulkFlags{yes: yes}).allow(t.Context(), l, "work", f)
	}
	if err := allow(deadletter.Filter{}, false); err != nil {
		t.Errorf("with %d letters: %v", unconfirmed, err)
	}
	put("one more")
	for _, c := range []struct {
		f       deadletter.Filter
		yes, ok bool
	}{
		{deadletter.Filter{}, false, false},
		{deadletter.Filter{Limit: unconfirmed + 1}, false, false},
		{deadletter.Filter{Limit: unconfirmed}, false, true},
		{deadletter.Filter{Error: "other"}, false, true},
		{deadletter.Filter{}, true, true},
	} {
		if err := allow(c.f, c.yes); (err == nil) != c.ok || err != nil && !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%+v, --yes %t: %v", c.f, c.yes, err)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
