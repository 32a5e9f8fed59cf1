package callback

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

// quiet returns a logger that discards everything.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// book replaces the service: it accepts the first answer to each key, and fails on demand.
type book struct {
	mu      sync.Mutex
	answers map[string]jobs.Answer // by name and key
	fail    func(answers []jobs.Answer) error
	calls   [][]jobs.Answer
}

func newBook() *book { return &book{answers: map[string]jobs.Answer{}} }

func (b *book) all(_ context.Context, answers []jobs.Answer) ([]jobs.Receipt, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, answers)
	if b.fail != nil {
		if err := b.fail(answers); err != nil {
			return nil, err
		}
	}
	out := make([]jobs.Receipt, len(answers))
	for i, a := range answers {
		at := a.Name + "\x00" + a.Key
		out[i] = jobs.Receipt{Kind: jobs.Accepted, Job: 7}
		switch _, known := b.answers[at]; {
		case known:
			out[i].Kind = jobs.Duplicate
		case a.Key == "early":
			out[i] = jobs.Receipt{Kind: jobs.Early}
		case a.Key == "late":
			out[i].Kind = jobs.Late
		default:
			b.answers[at] = a
		}
	}
	return out, nil
}

func (b *book) one(ctx context.Context, a jobs.Answer) (jobs.Receipt, error) {
	rs, err := b.all(ctx, []jobs.Answer{a})
	if err != nil {
		return jobs.Receipt{}, err
	}
	return rs[0], nil
}

// failing sets the function that refuses answers. nil: it refuses none.
func (b *book) failing(f func([]jobs.Answer) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = f
}

// kept returns the accepted answers.
func (b *book) kept() map[string]jobs.Answer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.answers)
}

// handler returns a Handler over a book.
func handler(tb testing.TB, b *book, c Config) *Handler {
	tb.Helper()
	c.Service = new(jobs.Service) // it is never called
	c.Logger = quiet()
	h, err := NewHandler(c)
	if err != nil {
		tb.Fatal(err)
	}
	h.answer = b.one
	return h
}
