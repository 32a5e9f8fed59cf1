package runs

import (
	"context"
	"log/slog"

	"github.com/swarmiji/swarmiji/internal/guard"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/task"
)

// Admissions holds the release functions of an admitted task. The zero value holds no functions.
// Only one goroutine may use it at a time.
type Admissions struct{ release func() }

// Ask calls the functions in order and keeps the release functions that they return. If one of them
// returns an error or panics, it calls no further ones and returns the error; a panic becomes a
// [*task.PanicError]. Call Release in any case.
func (a *Admissions) Ask(ctx context.Context, r *task.Request, functions []middleware.Admit) error {
	for _, admit := range functions {
		release, err := call(ctx, r, admit)
		if err != nil {
			return err
		}
		if earlier := a.release; earlier != nil && release != nil {
			a.release = func() { defer earlier(); release() } // also if release does not return
		} else if release != nil {
			a.release = release
		}
	}
	return nil
}

// call calls admit and returns its results. A panic of admit becomes the error, a
// [*task.PanicError].
func call(ctx context.Context, r *task.Request, admit middleware.Admit) (release func(), err error) {
	defer guard.Recover(&err)
	return admit(ctx, r)
}

// Release calls the kept functions, the last one first. If one panics, that is logged, and the
// remaining ones are called nevertheless. A second call does nothing.
func (a *Admissions) Release(ctx context.Context, logger *slog.Logger) {
	if a.release == nil {
		return
	}
	middleware.Guard(ctx, logger, "release of an admission", a.release)
	a.release = nil
}
