package celery_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/celery"
	"github.com/swarmiji/swarmiji/task"
)

// The arguments of Go tasks as Python calls them.
type (
	pair struct {
		X int `celery:"0,x"`
		Y int `celery:"1,y"`
	}
	page struct {
		Title string  `celery:"0,title"`
		Scale float64 `celery:"1,scale,optional"`
		Draft bool    `celery:",draft,optional"`
	}
	order struct {
		ID    string
		Lines []struct {
			SKU   string `json:"sku"`
			Count int    `json:"count"`
		}
	}
)

// Tasks with handlers in Go.
var (
	goAdd   = task.New[pair, int]("go.add")
	goMul   = task.New[pair, int]("go.mul")
	goTotal = task.New[[]int, int]("go.total")
	goEcho  = task.New[celery.Args, celery.Args]("go.echo")
	goSame  = task.New[any, any]("go.same")
	goPage  = task.New[page, string]("go.page")
	goOrder = task.New[order, int]("go.order")
	goFail  = task.New[string, int]("go.fail", task.WithMaxRetries(0))
	goPy    = task.New[string, int]("go.pyerror")
	goLater = task.New[int, int]("go.later", task.WithMaxRetries(3))
	goSlow  = task.New[string, string]("go.slow")
	goPanic = task.New[celery.Args, int]("go.panic", task.WithMaxRetries(0))
	goBytes = task.New[[]byte, int]("go.bytes")
	goAbout = task.New[celery.Args, map[string]any]("go.about")
)

// Tasks with handlers in Python.
var (
	pyAdd   = task.New[pair, int]("py.add")
	pyMul   = task.New[pair, int]("py.mul")
	pyTotal = task.New[[]int, int]("py.total")
	pyEcho  = task.New[celery.Args, echoed]("py.echo")
	pySame  = task.New[any, any]("py.same")
	pyFail  = task.New[celery.Args, int]("py.fail")
	pyPay   = task.New[float64, int]("py.pay")
	pyLater = task.New[int, int]("py.later")
	pyAbout = task.New[celery.Args, about]("py.about")
	pyNow   = task.New[celery.Args, float64]("py.now")
	pyNote  = task.New[celery.Args, []any]("py.note")
)

// echoed is the result of py.echo.
type echoed struct {
	Args   []any          `json:"args"`
	Kwargs map[string]any `json:"kwargs"`
}

// about is the result of py.about: a request as Python sees it.
type about struct {
	ID, Root, Parent, Group, ETA, Expires, Custom, Origin string
	Retries                                               int
	TimeLimit                                             []*float64 `json:"timelimit"`
	ReplyTo                                               string     `json:"reply_to"`
	Args                                                  []any
	Priority                                              int
}

// errPayment is an error of the Go program.
type errPayment struct{ amount int }

func (e *errPayment) Error() string { return fmt.Sprintf("no cover for %d", e.amount) }

// handle registers the handlers of the Go tasks. Each notes its call.
func (w *world) handle(r task.Registrar) error {
	return errors.Join(
		goAdd.Handle(r, func(ctx context.Context, a pair) (int, error) { w.note(ctx, a); return a.X + a.Y, nil }),
		goMul.Handle(r, func(ctx context.Context, a pair) (int, error) { w.note(ctx, a); return a.X * a.Y, nil }),
		goTotal.Handle(r, func(ctx context.Context, numbers []int) (sum int, err error) {
			w.note(ctx, numbers)
			for _, n := range numbers {
				sum += n
			}
			return sum, nil
		}),
		goEcho.Handle(r, func(ctx context.Context, a celery.Args) (celery.Args, error) { w.note(ctx, a); return a, nil }),
		goSame.Handle(r, func(ctx context.Context, a any) (any, error) { w.note(ctx, a); return a, nil }),
		goPage.Handle(r, func(ctx context.Context, a page) (string, error) {
			w.note(ctx, a)
			return fmt.Sprintf("%s %g %t", a.Title, a.Scale, a.Draft), nil
		}),
		goOrder.Handle(r, func(ctx context.Context, o order) (n int, err error) {
			w.note(ctx, o)
			for _, l := range o.Lines {
				n += l.Count
			}
			return n, nil
		}),
		goFail.Handle(r, func(ctx context.Context, text string) (int, error) {
			w.note(ctx, text)
			if text == "payment" {
				return 0, task.Fail(&errPayment{7})
			}
			return 0, task.Fail(errors.New(text))
		}),
		goPy.Handle(r, func(ctx context.Context, text string) (int, error) {
			w.note(ctx, text)
			return 0, task.Fail(&task.RemoteError{Type: "KeyError", Module: "builtins", Message: text, Args: []any{text, int64(2)}})
		}),
		goLater.Handle(r, func(ctx context.Context, until int) (int, error) {
			if r := w.note(ctx, until); r.Retries < until {
				return 0, task.Retry(fmt.Errorf("attempt %d", r.Retries), task.After(50*time.Millisecond))
			} else {
				return r.Retries, nil
			}
		}),
		goSlow.Handle(r, func(ctx context.Context, what string) (string, error) {
			w.note(ctx, what)
			<-ctx.Done()
			return "", task.Fail(context.Cause(ctx))
		}),
		goPanic.Handle(r, func(ctx context.Context, a celery.Args) (int, error) { w.note(ctx, a); panic("out of range") }),
		goBytes.Handle(r, func(ctx context.Context, b []byte) (int, error) { w.note(ctx, b); return len(b), nil }),
		goAbout.Handle(r, func(ctx context.Context, a celery.Args) (map[string]any, error) {
			r := w.note(ctx, a)
			return map[string]any{"id": r.ID, "root": r.RootID(), "parent": r.Parent, "group": r.Group, "queue": r.Queue}, nil
		}),
	)
}
