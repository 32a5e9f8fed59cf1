package middleware

import "context"

// Confirmer tells how a submission ends. A producer puts one into the context that send middleware gets.
type Confirmer interface {
	// OnConfirm has fn called once, with nil when the broker has confirmed the task, else with the reason why it was not sent or
	// may not have been. What was asked for last is called first.
	OnConfirm(fn func(err error))
}

type confirmerKey struct{}

// WithConfirmer returns a context in which [ConfirmerFrom] and [OnConfirm] find c. Producers call it.
func WithConfirmer(ctx context.Context, c Confirmer) context.Context {
	return context.WithValue(ctx, confirmerKey{}, c)
}

// ConfirmerFrom returns the confirmer of the submission that ctx belongs to.
func ConfirmerFrom(ctx context.Context) (Confirmer, bool) {
	c, ok := ctx.Value(confirmerKey{}).(Confirmer)
	return c, ok
}

// OnConfirm lets send middleware know how the submission ends: a nil error of the next Sender says only that the task is staged.
// fn runs on the submitter's goroutine or beside it, and the submission waits for it. False: ctx is not a submission's.
func OnConfirm(ctx context.Context, fn func(err error)) bool {
	c, ok := ConfirmerFrom(ctx)
	if ok {
		c.OnConfirm(fn)
	}
	return ok
}
