package natssettings_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

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
			Secret:   srv.Password(),
			Promises: settingstest.Promises{Exact: true, Durable: true},
			Report:   "../../docs/capabilities/settings-nats.json",
		}
	})
}

func TestNewRefuses(t *testing.T) {
	_, err := natssettings.New(natssettings.Config{Connect: natsconnect.Config{URLs: []string{"http://u:secret@h"}}, Namespace: "a.b", Replicas: 7})
	if err == nil || !strings.Contains(err.Error(), "Replicas") || !strings.Contains(err.Error(), "Namespace") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
