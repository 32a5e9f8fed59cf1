package errand

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Pause is [wake.Sleep].
func Pause(ctx context.Context, d time.Duration) bool { return wake.Sleep(ctx, d) }
