package middleware

import "context"

// Confirmer reports the result of a submission. A producer puts one into the context of send
// middleware.
type Confirmer interface {
	// OnConfirm registers fn. fn is called once: with nil when the broker has confirmed the task, else
	// with the reason why it was not sent or may not have been sent. Functions are called in the
	// reverse order of their registration.
	OnConfirm(fn func(err error))
}

// confirmerKey is the key of the [Confirmer] in a context.
type confirmerKey struct{}

// WithConfirmer returns a context in which [ConfirmerFrom] and [OnConfirm] find c. Producers call
// it.
func WithConfirmer(ctx context.Context, c Confirmer) context.Context {
	return context.WithValue(ctx, confirmerKey{}, c)
}

// ConfirmerFrom returns the confirmer of the submission that ctx belongs to. It returns nil and
// false if ctx does not belong to a submission.
func ConfirmerFrom(ctx context.Context) (Confirmer, bool) {
	c, ok := ctx.Value(confirmerKey{}).(Confirmer)
	return c, ok
}

// OnConfirm registers fn with the Confirmer of ctx, so that send middleware gets the result of the
// submission. A nil error of the next Sender means only that the task is staged. It returns false,
// without registering fn, if ctx does not belong to a submission.
//
// fn runs on the submitter's goroutine or another one, and the submission waits for it.
func OnConfirm(ctx context.Context, fn func(err error)) bool {
	c, ok := ConfirmerFrom(ctx)
	if ok {
		c.OnConfirm(fn)
	}
	return ok
}
