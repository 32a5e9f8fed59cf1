package redisresults

import (
	"context"
	"slices"
	"sync"

	"github.com/swarmiji/swarmiji/internal/crew"
	"github.com/swarmiji/swarmiji/resultstore"
)

// Limits of one trip to the server. A script blocks the server while it runs.
const (
	maxTrip      = 256
	maxTripBytes = 1 << 20 // a single larger record goes alone
	maxTrips     = 2       // at a time: while the server works on one, the next is made ready
)

// save is a record on its way.
type save struct {
	key     string
	value   []byte
	ttl     int64 // milliseconds
	channel string
	note    string
	answer  chan error // holds the one answer of a trip
}

// trip is saves that go to the server together.
type trip struct {
	saves   []*save
	callers int // that still wait for it; guarded by saver.mu
}

// saver gathers the records that are saved at a time: what comes while others are on their way goes together with the next
// trip. Nothing waits for company. A trip is tried once; what failed in a way that may pass is tried again by its caller
// alone, within its own ctx, so that it holds up nobody else. All methods may be called from any goroutine.
type saver struct {
	together func(saves []*save)                      // one attempt; answers each
	alone    func(ctx context.Context, s *save) error // as many attempts as ctx allows
	passing  func(err error) bool                     // whether it may do better later

	mu      sync.Mutex
	waiting []*save
	trips   []*trip
	running int // goroutines that make trips for which somebody waits
	closed  bool
	calls   sync.WaitGroup
	crew    *crew.Crew // of these goroutines
}

// do has s saved and waits for that until ctx ends.
func (v *saver) do(ctx context.Context, s *save) error {
	if !v.enter(s) {
		return resultstore.ErrClosed
	}
	defer v.calls.Done()
	var err error
	select {
	case err = <-s.answer:
	case <-ctx.Done():
		v.leave(s)
		select {
		case err = <-s.answer:
		default:
			return ctx.Err()
		}
	}
	if v.passing(err) && ctx.Err() == nil {
		return v.alone(ctx, s)
	}
	return err
}

// enter puts s among those that wait for a trip.
func (v *saver) enter(s *save) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.calls.Add(1)
	v.waiting = append(v.waiting, s)
	v.start()
	return true
}

// start has another goroutine make trips, if there may be one more; v.mu is held.
func (v *saver) start() {
	if v.running < maxTrips && len(v.waiting) > 0 {
		v.running++
		v.crew.Go(v.run)
	}
}

// leave takes s back, or gives up the trip that it is on when nobody else waits for that: it does not count any more, so that
// one to a server that is silent holds up nobody.
func (v *saver) leave(s *save) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if i := slices.Index(v.waiting, s); i >= 0 {
		v.waiting = slices.Delete(v.waiting, i, i+1)
		return
	}
	for _, t := range v.trips {
		if slices.Contains(t.saves, s) {
			if t.callers--; t.callers == 0 {
				v.running--
				v.start()
			}
			return
		}
	}
}

// run makes trips for as long as anything waits.
func (v *saver) run() {
	for v.trip() {
	}
}

// trip makes one; false: the goroutine is not counted any more. A trip has no context: one that may end takes a goroutine more
// for each call. The client's timeout ends it, and the end of its connection.
func (v *saver) trip() bool {
	t := v.begin()
	if t == nil {
		return false
	}
	v.together(t.saves)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.trips = slices.DeleteFunc(v.trips, func(o *trip) bool { return o == t })
	return t.callers > 0
}

// begin takes what goes together.
func (v *saver) begin() *trip {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, size := 0, 0
	for n < len(v.waiting) && n < maxTrip {
		size += len(v.waiting[n].value)
		if n > 0 && size > maxTripBytes {
			break
		}
		n++
	}
	if n == 0 {
		v.running--
		return nil
	}
	t := &trip{saves: slices.Clone(v.waiting[:n]), callers: n}
	v.waiting = slices.Delete(v.waiting, 0, n)
	v.trips = append(v.trips, t)
	return t
}

// close refuses further records and waits for those under way.
func (v *saver) close(ctx context.Context) error {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		v.calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return nil
	default:
		return ctx.Err()
	}
}
