package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/settings"
)

// TestStatusOfSettings: the commands reach the stored settings through the inspection API, whose
// errors have the status of their class.
func TestStatusOfSettings(t *testing.T) {
	for err, want := range map[error]int{
		settings.ErrBad: exitUsage, settings.ErrUnavailable: exitUnreachable, settings.ErrConflict: exitError, settings.ErrFull: exitError,
	} {
		stored := error(inspect.Wrap(fmt.Errorf("pause-queue: %w", err)))
		if got := status(errors.Join(nil, stored)); got != want {
			t.Errorf("status of %v is %d, want %d", err, got, want)
		}
	}
}
