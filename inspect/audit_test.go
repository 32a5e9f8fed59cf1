package inspect_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
)

// TestAuditReaders shows that a reader of the audit log publishes nothing, with and without Run, so
// that it pushes no change out of the log. It sees the changes of this and of other processes.
func TestAuditReaders(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	s, err := open.Open(t.Context(), "mem://", open.Options{Control: true, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(testwait.Long(t))
	local := func(actor string) *inspect.Local {
		l, err := open.Inspector(s, inspect.Config{Actor: actor, Listen: 20 * time.Millisecond, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	here, there := local("here"), local("there")
	ended := make(chan error, 1)
	go func() { ended <- here.Run(t.Context()) }()
	log := func(l *inspect.Local, n int) (who []string) {
		t.Helper()
		page, err := l.ListAudit(t.Context(), inspect.AuditQuery{Limit: n})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			who = append(who, e.Who)
		}
		return who
	}
	testwait.Until(t, "Run runs", func() bool {
		_, err := here.ListEvents(t.Context(), inspect.EventQuery{})
		return err == nil
	})
	sub, err := s.Audit.Subscribe(t.Context(), events.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close(testwait.Long(t))
	// a change that fails, since no worker runs
	stop := func(l *inspect.Local) { _, _ = l.StopWorkers(t.Context(), inspect.Stop{All: true}) }
	stop(there)
	testwait.Until(t, "the change of another process is in the log", func() bool { return len(log(here, 0)) == 1 })
	stop(here)
	testwait.Until(t, "the change of this process is in the log", func() bool { return len(log(here, 0)) == 2 })
	for _, l := range []*inspect.Local{here, there} { // there does not run
		if who := log(l, 0); len(who) != 2 || who[0] != "here" || who[1] != "there" {
			t.Errorf("the log has %v", who)
		}
		if who := log(l, 1); len(who) != 1 || who[0] != "here" {
			t.Errorf("the newest change is of %v", who)
		}
	}
	if err := s.Audit.Publish(t.Context(), events.Event{Type: "end", Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for seen["end"] == 0 {
		e, err := sub.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Type]++
	}
	if len(seen) != 2 || seen[inspect.AuditEvent] != 2 {
		t.Errorf("the log got %v, want two changes and the end", seen)
	}
}
