package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/outbox"
	"github.com/swarmiji/swarmiji/outbox/sqloutbox"
	"github.com/swarmiji/swarmiji/sqldb"
	"github.com/swarmiji/swarmiji/tx/sqltx"
)

func TestMain(m *testing.M) {
	if suite.ProcessNode() != "" {
		if err := member(); err != nil {
			fmt.Println(err) //nolint:forbidigo // the test reads it
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// calmLease is longer than any stall of a busy machine. stormLease is short, so that the buckets of
// a killed relay are soon free.
const (
	calmLease  = 6 * time.Second
	stormLease = time.Second
)

var quiet = slog.New(slog.DiscardHandler)

// store opens the outbox of a database.
func store(url string) (*sqloutbox.Store, sqldb.DB, error) {
	db, err := sqltest.New(url)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqloutbox.New(sqloutbox.Config{DB: db})
	return s, db, err
}

// lane is an outbox in a new SQLite file.
type lane struct {
	t     *testing.T
	url   string
	store *sqloutbox.Store
	db    *sql.DB // of the user
}

func newLane(t *testing.T, url string) *lane {
	t.Helper()
	s, db, err := store(url)
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(s.Close(testwait.Long(t)), db.Close(testwait.Long(t)))) })
	must(t, s.Prepare(testwait.Long(t)))
	return &lane{t, url, s, sqltest.OpenSQL(t, url)}
}

func newFile(t *testing.T) *lane {
	return newLane(t, "sqlite://"+filepath.Join(t.TempDir(), "app.db"))
}

// submit commits messages with these ids.
func (l *lane) submit(key string, ids ...string) {
	l.t.Helper()
	var ms []broker.Outgoing
	for _, id := range ids {
		ms = append(ms, broker.Outgoing{Queue: "work", OrderKey: key, Message: &broker.Message{ID: id, Body: []byte(key)}})
	}
	l.publish(ms...)
}

// publish commits messages.
func (l *lane) publish(ms ...broker.Outgoing) {
	l.t.Helper()
	u, err := l.db.BeginTx(testwait.Long(l.t), nil)
	must(l.t, err)
	defer func() { _ = u.Rollback() }() // an error says that it has ended
	must(l.t, l.store.PublishTx(testwait.Long(l.t), sqltx.Wrap(u), ms))
	must(l.t, u.Commit())
}

// run runs a relay until stop is called, which waits for its end. The end of the test stops it too.
func (l *lane) run(b broker.Broker, change ...func(*outbox.Config)) (stop func()) {
	l.t.Helper()
	cfg := outbox.Config{Store: l.store, Broker: b, Logger: quiet, Lease: calmLease}
	for _, c := range change {
		c(&cfg)
	}
	r, err := outbox.New(cfg)
	must(l.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			l.t.Errorf("Run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	l.t.Cleanup(stop)
	return stop
}

// until waits until the stats are as wanted.
func (l *lane) until(what string, ok func(outbox.Stats) bool) {
	l.t.Helper()
	testwait.Until(l.t, what, func() bool {
		st, err := l.store.Stats(testwait.Long(l.t))
		must(l.t, err)
		return ok(st)
	})
}

func (l *lane) untilEmpty() {
	l.t.Helper()
	l.until("nothing waits in the outbox", func(s outbox.Stats) bool { return s.Waiting == 0 })
}

// scripted is a broker that notes published messages, and refuses those that the test names.
type scripted struct {
	broker.Broker

	mu     sync.Mutex
	refuse map[string]error // by id
	got    []string         // ids of confirmed messages
	asked  map[string]int   // by id: publishes
	away   string           // a queue that cannot be reached
	silent string           // a queue that confirms nothing
	hold   chan struct{}    // not nil: publishes wait until it is closed
	held   chan struct{}    // receives a value when a publish waits
}

func newScripted(t *testing.T, refuse map[string]error) *scripted {
	b := membroker.New()
	t.Cleanup(func() { must(t, b.Close(testwait.Long(t))) })
	return &scripted{Broker: b, refuse: refuse, asked: make(map[string]int), held: make(chan struct{}, 1)}
}

func (s *scripted) Publish(ctx context.Context, queue string, m *broker.Message) error {
	s.mu.Lock()
	hold, silent := s.hold, s.silent == queue
	if silent {
		s.asked[m.ID]++
	}
	s.mu.Unlock()
	if silent {
		<-ctx.Done()
		return broker.ErrIndeterminate
	}
	if hold != nil {
		s.held <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
			return broker.ErrIndeterminate
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[m.ID]++
	if s.away != "" && queue == s.away {
		return broker.ErrUnavailable
	}
	if err := s.refuse[m.ID]; err != nil {
		return err
	}
	s.got = append(s.got, m.ID)
	return nil
}

// set replaces the refusals.
func (s *scripted) set(refuse map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = refuse
}

// sent returns the ids of confirmed messages, in order.
func (s *scripted) sent() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// repeated returns the ids that were published more than once.
func (s *scripted) repeated() (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.asked {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

var errTest = errors.New("an error of the test")
