package taskio_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/internal/taskio"
	"github.com/swarmiji/swarmiji/task"
)

// one is a submitter that takes one call at a time.
type one struct {
	mu         sync.Mutex
	under, top int
}

var errRefused = errors.New("refused")

func (o *one) Submit(_ context.Context, c task.Call) (task.Pending, error) {
	o.mu.Lock()
	o.under++
	o.top = max(o.top, o.under)
	o.mu.Unlock()
	time.Sleep(time.Second)
	o.mu.Lock()
	o.under--
	o.mu.Unlock()
	if c.Name == "bad" {
		return nil, errRefused
	}
	return pending{id: c.ID}, nil
}

type pending struct {
	task.Pending
	id task.ID
}

// many is a submitter that takes all calls at once.
type many struct{ one }

func (m *many) SubmitAll(_ context.Context, calls []task.Call) ([]task.Pending, error) {
	all := make([]task.Pending, len(calls))
	var err error
	for i, c := range calls {
		if c.Name == "bad" {
			err = errRefused
			continue
		}
		all[i] = pending{id: c.ID}
	}
	return all, err
}

func TestSubmit(t *testing.T) {
	calls := []task.Call{{ID: "1"}, {ID: "2", Name: "bad"}, {ID: "3"}}
	synctest.Test(t, func(t *testing.T) {
		o := &one{}
		for _, s := range []task.Submitter{o, &many{}} {
			confirmed, pending, err := taskio.Submit(t.Context(), s, calls, 2)
			if diff := cmp.Diff([]bool{true, false, true}, confirmed); diff != "" || !errors.Is(err, errRefused) {
				t.Errorf("%T: %s %v", s, diff, err)
			}
			if pending[0] == nil || pending[1] != nil || pending[2] == nil {
				t.Errorf("%T: %v", s, pending)
			}
		}
		if o.top != 2 {
			t.Errorf("%d at a time", o.top)
		}
	})
}

func TestJSON(t *testing.T) {
	text, err := taskio.Marshal(map[string]any{"a": "<&>", "n": int64(1)<<60 + 1})
	if err != nil || string(text) != `{"a":"<&>","n":1152921504606846977}` {
		t.Fatalf("%s, %v", text, err)
	}
	var back any
	if err := taskio.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"a": "<&>", "n": int64(1)<<60 + 1}, back); diff != "" {
		t.Error(diff)
	}
}
