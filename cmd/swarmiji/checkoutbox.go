package main

import (
	"context"
	"errors"
	"time"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/outbox"
)

// outboxSlack is the age of the oldest message of an outbox above which the doctor warns. Relays
// send a message within a second.
const outboxSlack = 10 * time.Second

// checkOutbox checks the outbox at a URL. Returns an error only for a wrong URL.
func (a *app) checkOutbox(ctx context.Context, url string, f *findings) error {
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	var st outbox.Stats
	err := a.WithOutbox(ctx, url, "--outbox", func(ctx context.Context, s open.OutboxStore) (err error) {
		st, err = s.Stats(ctx)
		return err
	})
	switch {
	case errors.Is(err, cli.ErrUsage):
		return err
	case err != nil:
		f.fail("outbox", err)
	default:
		checkStats(f, st)
	}
	return nil
}

// checkStats warns about an outbox without a relay, and about late, failing and dead messages.
func checkStats(f *findings, st outbox.Stats) {
	const check = "outbox"
	good := true
	bad := func(format string, args ...any) {
		good = false
		f.warn(check, format, args...)
	}
	oldest := st.Oldest.Round(time.Millisecond)
	switch {
	case st.Relays == 0 && st.Waiting > 0:
		bad("no relay runs, and %d messages wait, the oldest for %v; start 'swarmiji relay', or an outbox.Relay in a program", st.Waiting, oldest)
	case st.Relays == 0:
		bad("no relay runs; start 'swarmiji relay', or an outbox.Relay in a program")
	case st.Oldest > outboxSlack:
		bad("%d messages wait, the oldest for %v, although %d relays run; see their logs, and check that they reach the broker", st.Waiting, oldest, st.Relays)
	}
	if st.Failing > 0 {
		bad("%d messages fail and are tried again: %s; swarmiji outbox list --failing", st.Failing, st.Reason)
	}
	if st.Dead > 0 {
		bad("has %d dead messages: swarmiji outbox dead", st.Dead)
	}
	if good {
		f.ok(check, "%d waiting, %d relays", st.Waiting, st.Relays)
	}
}
