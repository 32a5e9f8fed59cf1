package health_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/health"
)

// A process serves its health. It is live from the beginning, and ready when its consumer consumes.
func ExampleHandler() {
	b := membroker.New()
	c, err := consumer.New(consumer.Config{Broker: b, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(health.Handler(health.Config{Consumers: []health.Consumer{c}, Broker: b}))
	defer server.Close()
	get := func(path string) int {
		r, err := http.Get(server.URL + path)
		if err != nil {
			panic(err)
		}
		defer func() { _ = r.Body.Close() }()
		_, _ = io.Copy(io.Discard, r.Body)
		return r.StatusCode
	}
	fmt.Println("live:", get("/live"), "ready:", get("/ready"))

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	for get("/ready") != http.StatusOK { // the orchestrator asks again
	}
	fmt.Println("ready:", get("/ready"))
	stop()
	if err := <-done; err != nil {
		panic(err)
	}
	fmt.Println("after the stop:", get("/ready"))
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// live: 200 ready: 503
	// ready: 200
	// after the stop: 503
}
