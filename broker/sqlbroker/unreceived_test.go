package sqlbroker

import (
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// The leases of messages may end after a closed subscription has begun to return them.
func TestLoseWhileReturning(t *testing.T) {
	for _, fair := range []bool{false, true} {
		q := &queue{text: &texts{fair: fair}}
		s := &subscription{
			q: q, limit: 10, held: make(map[*delivery]struct{}), unread: newUnreceived(q, 0),
			wakeFetch: wake.New(), wakeLease: wake.New(), receivable: wake.New(),
		}
		f := &fetcher{s: s}
		zero, text := new(int64), new(string)
		row := stored{
			level: zero, due: zero, seq: zero, id: text, generation: zero, deliveries: zero,
			priority: zero, expires: zero, contentType: text,
		}
		f.add(&claim{sent: time.Now()}, []stored{row, row}) // with a lease of 0
		ds := s.unread.all()
		f.returnUnreceived()
		if len(ds) != 2 || s.unread.n != 0 || len(s.held) != 2 {
			t.Errorf("fair %v: of %d messages %d can be received, %d are held", fair, len(ds), s.unread.n, len(s.held))
		}
		for _, d := range ds {
			s.lose(d)
		}
		if len(s.held) != 0 || s.unread.n != 0 {
			t.Errorf("fair %v: after the loss %d messages can be received, %d are held", fair, s.unread.n, len(s.held))
		}
	}
}
