// Package exporter shows the lengths of queues in Prometheus' text format, without a consumer.
package exporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/httpserve"
)

// namesAge is the time after which the names of the queues are read again.
const namesAge = time.Minute

// Exporter reads the lengths of queues, at most once in each Refresh. Set its fields before the
// first call. Safe for concurrent use.
type Exporter struct {
	Inspector broker.Inspector
	Names     []string
	List      func(ctx context.Context) ([]string, error) // nil: the names are fixed
	Refresh   time.Duration
	Timeout   time.Duration // of a look at the broker
	Logger    *slog.Logger

	mu       sync.Mutex // held during a look at the broker
	namesAt  time.Time
	lookedAt time.Time
	last     []byte
	failures int64
	logged   string // the error that was logged last
}

// Serve serves /metrics until ctx ends. Then it waits for the requests in progress, for closing at
// most. It closes ln.
func (w *Exporter) Serve(ctx context.Context, ln net.Listener, closing time.Duration) error {
	return httpserve.Serve(ctx, ln, w.Handler(), closing)
}

// Handler serves /metrics.
func (w *Exporter) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = rw.Write(w.page(r.Context())) // the client may be gone
	})
	return mux
}

// maxExported limits the number of queues, because each is a label.
const maxExported = 1000

// bounded returns the first maxExported names, sorted, and how many others there are.
func bounded(names []string) (shown []string, left int) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	n := min(len(names), maxExported)
	return names[:n], len(names) - n
}

// page returns the metrics in Prometheus' text format. It waits for the broker up to the timeout,
// unless the last look is younger than Refresh.
func (w *Exporter) page(ctx context.Context) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last != nil && time.Since(w.lookedAt) < w.Refresh {
		return w.last
	}
	// other requests wait for this look too
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.Timeout)
	defer cancel()
	w.last = w.look(ctx)
	w.lookedAt = time.Now()
	return w.last
}

// Queues returns the names of the queues, and reads them if they are old. It is not safe beside
// Handler: call it before the first request.
func (w *Exporter) Queues(ctx context.Context) ([]string, error) {
	if w.List == nil || w.Names != nil && time.Since(w.namesAt) < namesAge {
		return w.Names, nil
	}
	names, err := w.List(ctx)
	if err != nil {
		return nil, err
	}
	w.Names, w.namesAt = names, time.Now()
	return names, nil
}

// length is the state of a queue at a time.
type length struct {
	queue string
	at    time.Time
	broker.Stats
}

// look reads the lengths of all queues and returns the page. A queue that does not exist is left
// out. After another error all queues are left out, because their numbers are not known.
func (w *Exporter) look(ctx context.Context) []byte {
	begin := time.Now()
	names, err := w.Queues(ctx)
	names, left := bounded(names)
	var all []length
	for _, q := range names {
		if err != nil {
			break
		}
		st, serr := w.Inspector.Stats(ctx, q)
		switch {
		case serr == nil:
			all = append(all, length{q, time.Now(), st})
		case !errors.Is(serr, broker.ErrNoQueue):
			err = serr
		}
	}
	up := 1
	if err != nil {
		up, all = 0, nil
		w.failures++
		if text := err.Error(); text != w.logged {
			w.logged = text
			w.Logger.WarnContext(ctx, "the queues cannot be read; this error is logged once", slog.Any("error", err))
		}
	} else {
		w.logged = ""
	}
	var page bytes.Buffer
	for _, m := range queueMetrics {
		header(&page, m.name, m.kind, m.help)
		for i := range all {
			if v, known := m.value(&all[i]); known {
				fmt.Fprintf(&page, "%s{queue=%q} %s\n", m.name, all[i].queue, strconv.FormatFloat(v, 'f', -1, 64))
			}
		}
	}
	single := func(name, kind, help string, v any) {
		header(&page, name, kind, help)
		fmt.Fprintf(&page, "%s %v\n", name, v)
	}
	single("swarmiji_exporter_up", gaugeKind, "1 if the broker has answered, otherwise 0.", up)
	single("swarmiji_exporter_failures_total", counterKind, "Looks at the broker that failed.", w.failures)
	single("swarmiji_exporter_queues_left_out", gaugeKind, "Queues beyond the maximum number, which are not shown.", left)
	single("swarmiji_exporter_look_seconds", gaugeKind, "Time of the last look at the broker.", time.Since(begin).Seconds())
	return page.Bytes()
}

// Kinds of metrics in the text format.
const (
	gaugeKind   = "gauge"
	counterKind = "counter"
)

// header writes the lines before the values of a metric.
func header(page *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// queueMetric is a metric of each queue. value returns false if the broker does not know it.
type queueMetric struct {
	name, kind, help string
	value            func(l *length) (v float64, known bool)
}

// queueMetrics are the metrics of a queue. Those that consumers report too have the same names.
var queueMetrics = []queueMetric{
	{"swarmiji_queue_ready_tasks", gaugeKind, "Tasks that wait for a consumer.", func(l *length) (float64, bool) { return counted(l.Ready) }},
	{"swarmiji_queue_held_tasks", gaugeKind, "Tasks that consumers hold.", func(l *length) (float64, bool) { return counted(l.Held) }},
	{"swarmiji_queue_delayed_tasks", gaugeKind, "Tasks that wait for their time.", func(l *length) (float64, bool) { return counted(l.Delayed) }},
	{"swarmiji_queue_dead_tasks", gaugeKind, "Dead letters.", func(l *length) (float64, bool) { return counted(l.Dead) }},
	{"swarmiji_queue_dead_dropped_tasks_total", counterKind, "Dead letters that the limits have removed.", func(l *length) (float64, bool) { return counted(l.DeadDropped) }},
	{"swarmiji_queue_oldest_seconds", gaugeKind, "Age of the oldest ready task.", (*length).oldest},
}

// counted returns a number of the broker, which is -1 if it is not known.
func counted(n int) (v float64, known bool) { return float64(n), n >= 0 }

// oldest returns the age of the oldest ready task in seconds.
func (l *length) oldest() (v float64, known bool) {
	if l.Oldest.IsZero() {
		return 0, l.Ready == 0
	}
	return max(0, l.at.Sub(l.Oldest).Seconds()), true
}
