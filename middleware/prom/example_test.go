package prom_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	metrics "github.com/rcrowley/go-metrics"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/middleware/gometrics"
	"github.com/swarmiji/swarmiji/middleware/prom"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

// The page is an ordinary HTTP handler. "curl localhost:9090/metrics" shows it, and Prometheus
// scrapes it.
func ExampleHandler() {
	registry := metrics.NewRegistry()
	p, err := producer.New(producer.Config{Broker: membroker.New(), Metrics: gometrics.NewMetrics(registry)})
	must(err)
	mux := http.NewServeMux()
	mux.Handle("/metrics", prom.Handler(registry))
	// in a program: http.Server{Addr: "localhost:9090", Handler: mux}
	server := httptest.NewServer(mux)
	defer server.Close()

	greet := task.New[string, string]("greet", task.WithIgnoreResult(true))
	for _, name := range []string{"ada", "grace"} {
		_, err := greet.Submit(context.Background(), p, name)
		must(err)
	}
	resp, err := server.Client().Get(server.URL + "/metrics")
	must(err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	must(err)
	for line := range strings.Lines(string(page)) {
		if strings.Contains(line, "swarmiji_sent") {
			fmt.Print(line)
		}
	}
	// Output:
	// # HELP swarmiji_sent_tasks_total Tasks confirmed by the broker.
	// # TYPE swarmiji_sent_tasks_total counter
	// swarmiji_sent_tasks_total 2
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
