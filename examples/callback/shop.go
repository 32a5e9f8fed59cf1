package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Request is an order as the print shop accepts it.
type Request struct {
	Order    string `json:"order"`
	Pages    int    `json:"pages"`
	Callback string `json:"callback"` // where it tells that it is done
}

// Printed is its answer, some time later.
type Printed struct {
	Sheets int `json:"sheets"`
}

// shop is the external service: a print shop with faults. It knows nothing of jobs.
type shop struct {
	client  *http.Client
	printer chan struct{} // held while it prints
	busy    sync.WaitGroup

	mu    sync.Mutex
	times map[string]int // how often an order was asked for
}

func newShop() *shop {
	return &shop{client: &http.Client{Timeout: 10 * time.Second}, printer: make(chan struct{}, 1), times: map[string]int{}}
}

// ServeHTTP takes an order, and says nothing but that it was taken.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q Request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&q); err != nil {
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	s.times[q.Order]++
	times := s.times[q.Order]
	s.mu.Unlock()
	s.busy.Go(func() { s.print(context.WithoutCancel(r.Context()), q, times) })
	w.WriteHeader(http.StatusAccepted)
}

// print prints, and calls back.
func (s *shop) print(ctx context.Context, q Request, times int) {
	s.printer <- struct{}{}
	time.Sleep(50 * time.Millisecond)
	<-s.printer
	done := fmt.Sprintf(`{"sheets":%d}`, (q.Pages+1)/2)
	switch {
	case q.Order == "brochure" && times == 1:
		s.call(ctx, q.Callback+"&error=out+of+paper", "")
	case q.Order == "calendar" && times == 1: // it was forgotten
	case q.Order == "flyer":
		s.call(ctx, q.Callback, done)
		s.call(ctx, q.Callback, done) // to be sure
	default:
		s.call(ctx, q.Callback, done)
	}
}

func (s *shop) call(ctx context.Context, to, body string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		slog.Error("shop", "error", err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := s.client.Do(r)
	if err != nil {
		slog.Error("shop", "error", err)
		return
	}
	_ = res.Body.Close()
}

// close waits for orders that are being printed.
func (s *shop) close() {
	s.busy.Wait()
	s.client.CloseIdleConnections()
}
