package natssettings_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/natssettings"
	"github.com/swarmiji/swarmiji/settings/settingstest"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

func TestStore(t *testing.T) {
	settingstest.Run(t, func(t testing.TB) *settingstest.Harness {
		srv := testserver.RequireNATS(t)
		line := testserver.NewRelay(t, srv.Addr())
		ns := testserver.Namespace()
		return &settingstest.Harness{
			Open: func(t testing.TB) settings.Store {
				s, err := natssettings.New(natssettings.Config{
					Connect:   natsconnect.Config{URLs: []string{line.URL(srv.URL())}, Backoff: task.Backoff{Base: 5 * time.Millisecond, Max: 200 * time.Millisecond}},
					Namespace: ns, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Sever: func(testing.TB) { line.Sever() },
			Restart: func(t testing.TB) {
				if err := srv.Restart(testwait.Long(t)); err != nil {
					t.Fatal(err)
				}
			},
			Down: func(testing.TB) func() {
				line.SetDown(true)
				return func() { line.SetDown(false) }
			},
			Foreign:  func(t testing.TB) { foreign(t, srv, ns) },
			Secret:   srv.Password(),
			Promises: settingstest.Promises{Exact: true, Durable: true},
			Report:   "../../docs/capabilities/settings-nats.json",
		}
	})
}

// foreign writes keys into the bucket as another program would.
func foreign(t testing.TB, srv *testserver.NATS, namespace string) {
	t.Helper()
	conn, err := nats.Connect(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx := testwait.Long(t)
	bucket, err := js.KeyValue(ctx, "swj_settings_"+namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"other.program", "a/b/c/d/e", "=", "a=2Fb"} {
		if _, err := bucket.Put(ctx, key, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplicas shows that a store creates its bucket with Config.Replicas: a single server refuses
// more than one.
func TestReplicas(t *testing.T) {
	srv := testserver.RequireNATS(t)
	for replicas, want := range map[int]string{0: "", 1: "", 3: "replicas"} {
		s, err := natssettings.New(natssettings.Config{
			Connect: natsconnect.Config{URLs: []string{srv.URL()}}, Namespace: testserver.Namespace(), Replicas: replicas, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err = s.List(ctx, "")
		cancel()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d replicas: %v, want an error about %q", replicas, err, want)
		}
		if err := s.Close(testwait.Long(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	_, err := natssettings.New(natssettings.Config{Connect: natsconnect.Config{URLs: []string{"http://u:secret@h"}}, Namespace: "a.b", Replicas: 7})
	if err == nil || !strings.Contains(err.Error(), "Replicas") || !strings.Contains(err.Error(), "Namespace") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
