package main

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is written to by several goroutines.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func TestOrders(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out output
	if err := run(ctx, &out, ""); err != nil {
		t.Fatal(err)
	}
	text := out.text.String()
	for _, want := range []string{
		`poster    FINISHED after \d+ attempts, 5 sheets`,
		`brochure  FINISHED after ([2-9]|\d\d+) attempts, 10 sheets`, // there was no paper
		`calendar  FINISHED after ([2-9]|\d\d+) attempts, 15 sheets`, // it was forgotten
		`flyer     FINISHED after \d+ attempts, 20 sheets`,
		`ticket    FINISHED after \d+ attempts, 25 sheets`,
		`newspaper CANCELLED after 0 attempts, 0 sheets`,
		`an answer for flyer was duplicate`,
		`calendar  It awaits the answer for key "calendar" until .*`,
		`newspaper .*window.*`,
	} {
		if !regexp.MustCompile(`(?m)^` + want + `$`).MatchString(text) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func TestAStoreThatIsNone(t *testing.T) {
	if err := run(t.Context(), &output{}, "ftp://example.org"); err == nil {
		t.Fatal("it was accepted")
	}
}
