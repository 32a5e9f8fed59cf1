package memschedule_test

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/schedule/scheduletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func harness(t testing.TB) *scheduletest.Harness {
	first, err := memschedule.New(memschedule.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &scheduletest.Harness{
		Open:     func(testing.TB) scheduletest.Store { return first.View() },
		Promises: scheduletest.Promises{List: true, Pause: true, Watch: true, Repair: true, Change: true},
		Slack:    100 * time.Millisecond,
		Lease:    150 * time.Millisecond,
		Report:   "../../docs/capabilities/schedules-memory.json",
	}
}

func TestStore(t *testing.T) { scheduletest.Run(t, harness) }

func TestNewRefusesANameThatIsNone(t *testing.T) {
	if _, err := memschedule.New(memschedule.Config{Name: "a\nb"}); !errors.Is(err, schedule.ErrBadEntry) {
		t.Errorf("%v", err)
	}
}
