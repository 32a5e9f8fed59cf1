package natsschedule_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/natsschedule"
	"github.com/swarmiji/swarmiji/schedule/scheduletest"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	if scheduletest.Child(child) {
		return
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper))
}

func makeStore(url, name string) (*natsschedule.Store, error) {
	return natsschedule.New(natsschedule.Config{
		Connect: natsconnect.Config{URLs: []string{url}, Backoff: task.Backoff{Base: 5 * time.Millisecond, Max: 200 * time.Millisecond}}, Name: name, Logger: slog.New(slog.DiscardHandler),
	})
}

// child opens a store in the processes of TestKilled.
func child(url, name string) (scheduletest.Store, error) { return makeStore(url, name) }

func TestKilled(t *testing.T) {
	scheduletest.Killed(t, testserver.RequireNATS(t).URL(), testserver.Namespace(), child)
}

func open(t testing.TB, url, name string) *natsschedule.Store {
	t.Helper()
	s, err := makeStore(url, name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func harness(t testing.TB) *scheduletest.Harness {
	srv := testserver.RequireNATS(t)
	line := testserver.NewRelay(t, srv.Addr())
	name := testserver.Namespace() + " of a test" // a subject cannot contain this name
	return &scheduletest.Harness{
		Open:  func(t testing.TB) scheduletest.Store { return open(t, line.URL(srv.URL()), name) },
		Sever: func(testing.TB, scheduletest.Store) { line.Sever() },
		Restart: func(t testing.TB) {
			srv.Kill()
			if err := srv.Restart(testwait.Long(t)); err != nil {
				t.Fatal(err)
			}
		},
		Down: func(testing.TB) func() {
			line.SetDown(true)
			return func() { line.SetDown(false) }
		},
		Secret:   srv.Password(),
		Promises: scheduletest.Promises{List: true, Pause: true, Watch: true, Repair: true, Change: true, Durable: true},
		Report:   "../../docs/capabilities/schedules-nats.json",
	}
}

func TestStore(t *testing.T) { scheduletest.Run(t, harness) }

func TestNewRefuses(t *testing.T) {
	_, err := natsschedule.New(natsschedule.Config{Connect: natsconnect.Config{URLs: []string{"http://u:secret@h"}}, Name: "a\nb", Replicas: 7})
	if !errors.Is(err, schedule.ErrBadEntry) || !strings.Contains(err.Error(), "replicas") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
