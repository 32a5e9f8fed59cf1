package steer

import (
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
)

// Apply pauses or resumes the queue in as the settings say, and logs a change with log. It also
// sets the bounds of the queue. It limits the number of workers of own, which is nil if the queue
// shares its workers. Before the queue is open it only notes the pause and the bounds in it.
//
// Returns the error of the broker. If the queue has ended, or s is nil, it returns nil.
func (s *Steer) Apply(name string, in *intake.Queue, own *intake.Workers, log func(slog.Level, string, ...slog.Attr)) error {
	if s == nil {
		return nil
	}
	var set, unset intake.Reason
	stored, tripped := s.QueuePaused(name)
	for why, is := range map[intake.Reason]bool{intake.Stored: stored, intake.Tripped: tripped} {
		if is {
			set |= why
		} else {
			unset |= why
		}
	}
	before := in.Paused()
	err := errors.Join(in.SetPause(set, unset), in.SetBounds(s.boundsOf(name, in.Bounds())))
	if now := in.Paused(); now != before {
		msg := "the queue is resumed by a setting"
		if now {
			msg = "the queue is paused by a setting"
		}
		log(slog.LevelInfo, msg, slog.Bool("breaker", tripped))
	}
	if own != nil {
		err = errors.Join(err, own.Limit(s.MaxWorkers(name)))
	}
	if errors.Is(err, intake.ErrNotRunning) {
		return nil
	}
	return err
}
