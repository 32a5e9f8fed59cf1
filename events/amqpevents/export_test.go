package amqpevents

import "time"

// SetPlaceWait shortens the time after which a stream believes that its queue was deleted and made anew. It is called
// before Replay.
func (b *Bus) SetPlaceWait(d time.Duration) { b.placeWait = d }
