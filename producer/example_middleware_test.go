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
	"github.com/swarmiji/swarmiji/tasktest"
)

type tenantKey struct{}

var errNoTenant = errors.New("no tenant")

// Send middleware sees every task before it is sent. This one copies the tenant of the request into
// a header, and refuses tasks without one: the caller gets the error, and nothing is sent.
func ExampleConfig_middleware() {
	tenant := func(next middleware.Sender) middleware.Sender {
		return func(ctx context.Context, queue string, e *task.Envelope) error {
			name, ok := ctx.Value(tenantKey{}).(string)
			if !ok {
				return errNoTenant
			}
			headers := maps.Clone(e.Headers) // replace the map, never write to it
			if headers == nil {
				headers = make(map[string]string)
			}
			headers["tenant"] = name
			e.Headers = headers
			return next(ctx, queue, e)
		}
	}
	bill := task.New[int, string]("bill")

	s := tasktest.New(nil)
	defer s.Close()
	p := s.Producer(producer.Config{Middleware: []middleware.SendMiddleware{tenant}})
	s.Start(consumer.Config{}, func(r task.Registrar) error {
		return bill.Handle(r, func(ctx context.Context, amount int) (string, error) {
			r, _ := task.FromContext(ctx)
			return fmt.Sprintf("%s pays %d", r.Headers["tenant"], amount), nil
		})
	})

	ctx := context.Background()
	_, err := bill.Submit(ctx, p, 100)
	fmt.Println("refused:", errors.Is(err, errNoTenant))

	future, err := bill.Submit(context.WithValue(ctx, tenantKey{}, "acme"), p, 100)
	if err != nil {
		panic(err)
	}
	fmt.Println(future.Get(ctx))
	// Output:
	// refused: true
	// acme pays 100 <nil>
}
