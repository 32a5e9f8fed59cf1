package task_test

import (
	"encoding/json"
	"testing"

	"github.com/swarmiji/swarmiji/task"
)

// TestCallIsNotJSON shows that a Call is refused by encoding/json, also inside of another value,
// instead of being encoded with losses.
func TestCallIsNotJSON(t *testing.T) {
	t.Parallel()
	call := task.New[int, int]("math.double").Call(2, task.WithOrderKey("k"))
	for _, v := range []any{call, &call, []task.Call{call}, map[string]any{"call": call}} {
		if text, err := json.Marshal(v); err == nil {
			t.Errorf("%T is encoded as %s, want an error", v, text)
		}
	}
}

// TestOrderKey shows that a call has the key of its definition unless it has its own.
func TestOrderKey(t *testing.T) {
	t.Parallel()
	def := task.New[int, int]("math.double", task.WithOrderKey("all"))
	if got := def.With(task.WithQueue("q")).Call(1).OrderKey; got != "all" {
		t.Errorf("the key is %q, want that of the definition", got)
	}
	if got := def.Call(1, task.WithOrderKey("one")).OrderKey; got != "one" {
		t.Errorf("the key is %q, want that of the call", got)
	}
}
