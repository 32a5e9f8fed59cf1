package steer

import (
	"errors"
	"log/slog"

	"github.com/swarmiji/swarmiji/consumer/internal/intake"
)

// Apply pauses or resumes a queue as the settings say, and limits its workers, if it has some of
// its own (else nil). It logs a change with log. Before the queue is open it only notes that it is
// paused. Returns the error of the broker; that the queue has ended is none. If s is nil, it does
// nothing.
func (s *Steer) Apply(name string, in *intake.Queue, own *intake.Workers, log func(slog.Level, string, ...slog.Attr)) error {
	if s == nil {
		return nil
	}
	var set, clear intake.Reason
	stored, tripped := s.QueuePaused(name)
	for why, is := range map[intake.Reason]bool{intake.Stored: stored, intake.Tripped: tripped} {
		if is {
			set |= why
		} else {
			clear |= why
		}
	}
	before := in.Paused()
	err := in.SetPause(set, clear)
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
