package memsettings_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
	"github.com/swarmiji/swarmiji/settings/settingstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	settingstest.Run(t, func(testing.TB) *settingstest.Harness {
		server := new(memsettings.Server)
		return &settingstest.Harness{
			Open:     func(testing.TB) settings.Store { return server.Connect() },
			Foreign:  func(testing.TB) {}, // no other program can write there
			Promises: settingstest.Promises{Exact: true},
			Report:   "../../docs/capabilities/settings-memory.json",
		}
	})
}
