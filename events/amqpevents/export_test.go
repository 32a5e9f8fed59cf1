package amqpevents

import "time"

// SetPositionWait shortens the time after which a stream concludes that its queue was deleted and
// made again. Call it before Replay.
func (b *Bus) SetPositionWait(d time.Duration) { b.positionWait = d }
