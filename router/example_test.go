package router_test

import (
	"context"
	"fmt"

	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// show prints the queues of tasks.
func show(r router.Router, es ...task.Envelope) {
	for i := range es {
		q, err := r.Route(context.Background(), &es[i])
		fmt.Println(es[i].Name, es[i].Headers["tenant"], "->", q, err)
	}
	fmt.Println(r.Queues())
}

func ExampleStatic() {
	show(router.Static("mail"), task.Envelope{Name: "email.send"})
	// Output:
	// email.send  -> mail <nil>
	// [mail]
}

func ExampleTable() {
	t, err := router.NewTable(router.TableConfig{
		Routes: []router.Route{
			{Pattern: "email.password-reset", Queue: "urgent"},
			{Pattern: "email.*", Queue: "mail"},
			{Pattern: "report.#", Queue: "slow"},
		},
		Default: "rest",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(t,
		task.Envelope{Name: "email.password-reset"},
		task.Envelope{Name: "email.newsletter"},
		task.Envelope{Name: "report.sales.monthly"},
		task.Envelope{Name: "thumbnail"},
	)
	// Output:
	// email.password-reset  -> urgent <nil>
	// email.newsletter  -> mail <nil>
	// report.sales.monthly  -> slow <nil>
	// thumbnail  -> rest <nil>
	// [urgent mail slow rest]
}

func ExampleHash() {
	h, err := router.NewHash(router.HashConfig{Queues: []string{"shard-0", "shard-1", "shard-2"}, Header: "tenant"})
	if err != nil {
		fmt.Println(err)
		return
	}
	show(h,
		task.Envelope{ID: "1", Name: "import", Headers: map[string]string{"tenant": "acme"}},
		task.Envelope{ID: "2", Name: "export", Headers: map[string]string{"tenant": "acme"}},
		task.Envelope{ID: "3", Name: "import", Headers: map[string]string{"tenant": "umbrella"}},
	)
	// Output:
	// import acme -> shard-0 <nil>
	// export acme -> shard-0 <nil>
	// import umbrella -> shard-1 <nil>
	// [shard-0 shard-1 shard-2]
}

func ExampleFunc() {
	f := router.Func{
		Fn: func(_ context.Context, e *task.Envelope) (string, error) {
			if p, ok := e.Meta.Priority.Get(); ok && p < 50 {
				return "urgent", nil
			}
			return router.DefaultQueue, nil
		},
		List: []string{"urgent", router.DefaultQueue},
	}
	urgent := task.Envelope{Name: "alarm"}
	urgent.Meta.Priority = task.Set(10)
	show(f, urgent, task.Envelope{Name: "report"})
	// Output:
	// alarm  -> urgent <nil>
	// report  -> default <nil>
	// [urgent default]
}
