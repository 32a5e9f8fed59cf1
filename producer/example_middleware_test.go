package producer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

type tenantKey struct{}

var errNoTenant = errors.New("no tenant")

// Send middleware sees every task on its way out. This one puts the tenant of the request into a header, and refuses tasks
// that have none: the caller gets its error and nothing is sent.
func ExampleConfig_middleware() {
	tenant := func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			name, ok := ctx.Value(tenantKey{}).(string)
			if !ok {
				return errNoTenant
			}
			headers := maps.Clone(e.Headers) // replaced, never written to
			if headers == nil {
				headers = make(map[string]string)
			}
			headers["tenant"] = name
			e.Headers = headers
			return next(ctx, queue, e)
		}
	}
	bill := task.New[int, string]("bill")

	p, c, run := inMemory(producer.Config{Middleware: []middleware.SendMiddleware{tenant}}, consumer.Config{})
	must(bill.Handle(c, func(ctx context.Context, amount int) (string, error) {
		r, _ := task.FromContext(ctx)
		return fmt.Sprintf("%s pays %d", r.Headers["tenant"], amount), nil
	}))
	defer run()()

	ctx, cancel := soon()
	defer cancel()
	_, err := bill.Submit(ctx, p, 100)
	fmt.Println("refused:", errors.Is(err, errNoTenant))

	future, err := bill.Submit(context.WithValue(ctx, tenantKey{}, "acme"), p, 100)
	must(err)
	fmt.Println(future.Get(ctx))
	// Output:
	// refused: true
	// acme pays 100 <nil>
}
