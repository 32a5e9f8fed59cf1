package task_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/swarmiji/swarmiji/task"
)

// Handlers can be tested without a broker: a Mux registers them as a consumer does, and the test
// makes a request.
func ExampleMux() {
	type pair struct{ A, B int }
	add := task.New[pair, int]("math.add")

	var mux task.Mux
	if err := add.Handle(&mux, func(ctx context.Context, p pair) (int, error) {
		r, _ := task.FromContext(ctx) // the request of this run
		fmt.Println("run", r.Retries+1, "of", r.ID)
		return p.A + p.B, nil
	}); err != nil {
		panic(err)
	}

	h, _, ok := mux.Lookup("math.add")
	fmt.Println(mux.Names(), ok)
	r := task.NewRequest(
		&task.Envelope{ID: "t-1", Name: "math.add", Args: []byte(`{"A": 1, "B": 2}`), Retries: 1},
		func(_ string, data []byte, v any) error { return json.Unmarshal(data, v) },
	)
	fmt.Println(h.Handle(task.WithRequest(context.Background(), r), r))
	// Output:
	// [math.add] true
	// run 2 of t-1
	// 3 <nil>
}
