package cli

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
		settings.ErrBad: ExitUsage, settings.ErrUnavailable: ExitUnreachable, settings.ErrConflict: ExitError, settings.ErrFull: ExitError,
	} {
		stored := error(inspect.Wrap(fmt.Errorf("pause-queue: %w", err)))
		if got := Status(errors.Join(nil, stored)); got != want {
			t.Errorf("status of %v is %d, want %d", err, got, want)
		}
	}
}
