package consumer

import "context"

// Slots are the slots of a team, for tests.
type Slots struct{ s slots }

func (s *Slots) Resize(n int64)                   { s.s.resize(n) }
func (s *Slots) TryAcquire() bool                 { return s.s.tryAcquire() }
func (s *Slots) Acquire(ctx context.Context) bool { return s.s.acquire(ctx) }
func (s *Slots) Release()                         { s.s.release() }
