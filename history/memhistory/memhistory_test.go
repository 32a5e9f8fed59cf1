package memhistory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/history/historytest"
	"github.com/swarmiji/swarmiji/history/memhistory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	historytest.Run(t, func(t *testing.T) func(*testing.T) history.Store {
		s, err := memhistory.New(memhistory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return func(*testing.T) history.Store { return s }
	})
}

func TestBadConfig(t *testing.T) {
	for _, most := range []int{-1, history.MaxExamined + 1} {
		if _, err := memhistory.New(memhistory.Config{Max: most}); err == nil {
			t.Errorf("Max %d", most)
		}
	}
}
