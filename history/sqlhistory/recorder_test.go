package sqlhistory_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/task"
)

// recording is a recorder on a bus in memory.
type recording struct {
	testing.TB
	bus  *listened
	r    *history.Recorder
	stop func()
}

// record runs a recorder that writes to s. It listens when the call returns.
func record(t testing.TB, s history.Store, c history.RecorderConfig) *recording {
	t.Helper()
	bus := &listened{memevents.New(memevents.Config{}), make(chan struct{})}
	c.Bus, c.Store, c.Logger = bus, s, slog.New(slog.DiscardHandler)
	r, err := history.NewRecorder(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	rec := &recording{t, bus, r, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}}
	testwait.Closed(t, "the recorder listens", bus.heard)
	return rec
}

// listened is a bus that tells when a recorder listens.
type listened struct {
	*memevents.Bus
	heard chan struct{}
}

func (b *listened) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	sub, err := b.Bus.Subscribe(ctx, f)
	close(b.heard)
	return sub, err
}

// publish publishes an event about a task.
func (r *recording) publish(typ string, id task.ID) {
	if err := r.bus.PublishNow(events.Event{Type: typ, TaskID: id, Time: time.Now(), Name: "n", Queue: "q", NodeID: "host-1"}); err != nil {
		r.Fatal(err)
	}
}

// TestFullSpeed publishes events faster than a recorder can write them. The recorder drops some,
// counts each of them, and marks their time as gaps.
func TestFullSpeed(t *testing.T) {
	for name, url := range databases() {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, sqltest.Open(t, url(t)), testserver.Namespace())
			rec := record(t, s, history.RecorderConfig{MaxWaiting: 500})
			defer rec.bus.Close(context.Background())
			published := uint64(0)
			testwait.Until(t, "events are dropped", func() bool {
				for range 5000 {
					rec.publish(events.TaskSent, task.ID(fmt.Sprint("t", published)))
					published++
				}
				return rec.r.Stats().Dropped > 0
			})
			end := time.Now()
			testwait.UntilNil(t, "each event is recorded or dropped", func() error {
				if st := rec.r.Stats(); st.Recorded+st.Dropped < published {
					return fmt.Errorf("%+v after %d events", st, published)
				}
				return nil
			})
			rec.stop()
			st := rec.r.Stats()
			if st.Recorded+st.Dropped != published {
				t.Errorf("%+v of %d events", st, published)
			}
			p, err := s.Page(t.Context(), parse(t, "name:n since:1h"), history.PageOptions{})
			if err != nil {
				t.Fatal(err)
			}
			dropped := uint64(0)
			for _, g := range p.Gaps {
				dropped += uint64(g.Dropped)
				if g.Since.After(end) {
					t.Errorf("the gap %+v begins after the last event", g)
				}
			}
			if len(p.Gaps) == 0 || dropped != st.Dropped {
				t.Errorf("the gaps %+v have %d dropped events, want %d", p.Gaps, dropped, st.Dropped)
			}
			t.Logf("of %d events %d were dropped, in %d gaps", published, st.Dropped, len(p.Gaps))
		})
	}
}

// TestRefusedEvent shows that a recorder skips the event of a task that the database refuses for
// good, and stores the other events of its batch.
func TestRefusedEvent(t *testing.T) {
	refuse := map[string]string{ // the node of a test
		"sqlite":   "CREATE TRIGGER refuse BEFORE INSERT ON swarmiji_history WHEN NEW.node = 'refused' BEGIN SELECT RAISE(ABORT, 'no'); END",
		"postgres": "ALTER TABLE swarmiji_history DROP CONSTRAINT IF EXISTS refuse, ADD CONSTRAINT refuse CHECK (node <> 'refused')",
	}
	for name, url := range databases() {
		t.Run(name, func(t *testing.T) {
			url := url(t)
			s := openStore(t, sqltest.Open(t, url), testserver.Namespace())
			if err := s.Prepare(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
			err := sqltest.Conn(t, url).Single(testwait.Long(t), func(ctx context.Context, tx *sqlconn.Tx) error {
				_, err := tx.Exec(ctx, refuse[name])
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			rec := record(t, s, history.RecorderConfig{})
			defer rec.bus.Close(context.Background())
			rec.publish(events.TaskSent, "good-1")
			if err := rec.bus.PublishNow(events.Event{Type: events.TaskSent, TaskID: "bad", Time: time.Now(), NodeID: "refused"}); err != nil {
				t.Fatal(err)
			}
			rec.publish(events.TaskSent, "good-2")
			testwait.UntilNil(t, "two events are recorded and one is refused", func() error {
				if st := rec.r.Stats(); st != (history.Stats{Recorded: 2, Refused: 1}) {
					return fmt.Errorf("%+v", st)
				}
				return nil
			})
			rec.stop()
		})
	}
}

// TestPacedEvents publishes 5,000 events per second for some time: four for each task, whose tasks
// overlap. A recorder writes all of them to SQLite.
func TestPacedEvents(t *testing.T) {
	testserver.Thorough(t)
	const perSecond, seconds, lasts = 5000, 32, 200
	s := openStore(t, sqltest.Open(t, databases()["sqlite"](t)), testserver.Namespace())
	rec := record(t, s, history.RecorderConfig{})
	defer rec.bus.Close(context.Background())
	types := []string{events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	began, most := time.Now(), perSecond*seconds
	for sent := 0; sent < most; <-ticker.C {
		for due := min(most, int(time.Since(began).Seconds()*perSecond)); sent < due; sent++ {
			// of each task the events follow each other after those of `lasts` other tasks
			first := sent / (4 * lasts) * lasts
			rec.publish(types[sent/lasts%4], task.ID(fmt.Sprint("t", first+sent%lasts)))
		}
	}
	published := time.Since(began)
	rec.stop()
	st := rec.r.Stats()
	t.Logf("%d events in %s, written %s later: %+v", most, published.Round(time.Millisecond), (time.Since(began) - published).Round(time.Millisecond), st)
	if st.Dropped > 0 {
		t.Errorf("%d events were dropped", st.Dropped)
	}
	if n, err := s.Count(t.Context(), parse(t, "state:succeeded name:n")); err != nil || n.N != history.MaxCount {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := s.Count(t.Context(), parse(t, "-state:succeeded name:n")); err != nil || n.N != 0 {
		t.Errorf("%d tasks without all of their events, %v", n.N, err)
	}
}
