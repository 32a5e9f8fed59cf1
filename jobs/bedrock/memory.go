package bedrock

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/swarmiji/swarmiji/jobs"
)

const (
	// workUnit is the size of a unit of work in bytes. Larger requests need units, since the memory
	// for executing a request is several times its size. A request needs at most maxUnits, 8 MiB.
	workUnit, maxUnits = freeBuffer, 2048
	// 1/workShare of MaxMemory is the size of all units, if that is more than maxUnits. Jobs that
	// Query reads at a time have at most 1/pageShare of MaxMemory.
	workShare, pageShare = 16, 8
	// listedJob is the number of bytes for which a job of a list counts in addition to its text.
	listedJob = 512
	// partSize is the approximate size of the parts in which an answer is stored and written.
	partSize = 64 << 10
	// mostWaiting is the largest buffer of requests with which a client may wait for a job.
	mostWaiting = 256 << 10
)

// errNoMemory is the status if no memory is left for an answer.
const errNoMemory statusError = "503 Server out of memory for answers"

// budget counts the memory of large requests and answers.
type budget struct {
	most    int64
	used    atomic.Int64
	answers atomic.Int64 // part of used
	// Units of work. A list may wait in the store for a long time; it must not stop other requests.
	lists, singles work
	pages          work         // of Query; a unit is a job of any size
	mostClaims     int64        // the limit of claims, if no batch has one job
	claims         atomic.Int64 // jobs that GetJobs may be claiming now
}

// newBudget returns a budget of most bytes.
func newBudget(most int64) *budget {
	executed := max(maxUnits, most/workShare/workUnit)
	return &budget{
		most: most, lists: newWork(executed), singles: newWork(executed), pages: newWork(most / pageShare / jobs.MaxData),
		mostClaims: min(max(most/batchShare/jobs.MaxData, mostBatch), jobs.MaxTake),
	}
}

// request reserves delta bytes for a large request, or releases them if delta is negative. Returns
// false if they are not available.
func (m *budget) request(delta int) bool { return add(&m.used, delta, m.most) }

// answer reserves delta bytes for a large answer, or releases them if delta is negative. Returns
// false if they are not available. Answers may use half of the memory, so that clients that do not
// read cannot prevent others from sending.
func (m *budget) answer(delta int) bool {
	if !add(&m.answers, delta, m.most/2) {
		return false
	}
	if !add(&m.used, delta, m.most) {
		m.answers.Add(-int64(delta))
		return false
	}
	return true
}

// add adds delta to n. Returns false, and adds nothing, if the sum would exceed most.
func add(n *atomic.Int64, delta int, most int64) bool {
	if sum := n.Add(int64(delta)); delta > 0 && sum > most {
		n.Add(-int64(delta))
		return false
	}
	return true
}

// claim reserves memory for claiming up to n jobs of any size, and returns their number. It does
// not wait: if little memory is free, the number is less than n. It is at least 1, even if no
// memory is free: GetJob reserves none. leave releases the memory.
func (m *budget) claim(n int) (limit int, leave func()) {
	for {
		now := m.claims.Load()
		got := max(min(int64(n), m.mostClaims-now), 1)
		if m.claims.CompareAndSwap(now, now+got) {
			return int(got), func() { m.claims.Add(-got) }
		}
	}
}

// work limits the bytes or jobs of the calls that are executed at a time.
type work struct {
	units chan struct{} // one element for each unit in use
	gate  chan struct{} // held while a call takes units, so that two calls never wait for each other
}

// newWork returns n units of work, at least one.
func newWork(n int64) work {
	return work{units: make(chan struct{}, max(n, 1)), gate: make(chan struct{}, 1)}
}

// some waits for one unit and reserves it, and up to n units as far as they are free. It returns
// their number. leave releases them. Returns an error if ctx ends first.
func (w *work) some(ctx context.Context, n int) (got int, leave func(), err error) {
	select {
	case w.units <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	leave = func() {
		for range got {
			<-w.units
		}
	}
	for got = 1; got < n; got++ {
		select {
		case w.units <- struct{}{}:
		default:
			return got, leave, nil
		}
	}
	return got, leave, nil
}

// enter waits for the units of work for the given number of bytes and reserves them. leave releases
// them. Up to workUnit bytes need none. Returns an error if ctx ends first.
func (w *work) enter(ctx context.Context, bytes int) (leave func(), err error) {
	n := 0
	leave = func() {
		for range n {
			<-w.units
		}
	}
	if bytes <= workUnit {
		return leave, nil
	}
	select {
	case w.gate <- struct{}{}:
		defer func() { <-w.gate }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for want := min((bytes+workUnit-1)/workUnit, maxUnits); n < want; n++ {
		select {
		case w.units <- struct{}{}:
		case <-ctx.Done():
			leave()
			return nil, ctx.Err()
		}
	}
	return leave, nil
}

// body is the body of an answer until it is written. Its parts are not copied.
type body struct {
	memory *budget
	out    *[]byte  // the last part
	full   [][]byte // the parts before the last one
	size   int      // bytes in full
	taken  int      // capacity of full in bytes
	held   int      // bytes that memory has reserved
}

// length returns the length of the body in bytes.
func (b *body) length() int { return b.size + len(*b.out) }

// count reserves memory for the body, apart from the first freeBuffer bytes. Returns false if it is
// not available.
func (b *body) count() bool {
	more := max(b.taken+cap(*b.out)-freeBuffer, 0) - b.held
	if more <= 0 {
		return true
	}
	if !b.memory.answer(more) {
		return false
	}
	b.held += more
	return true
}

// startPart begins another part if the last one has at least partSize bytes.
func (b *body) startPart() {
	if len(*b.out) < partSize {
		return
	}
	b.full = append(b.full, *b.out)
	b.size += len(*b.out)
	b.taken += cap(*b.out)
	next := make([]byte, 0, partSize+partSize/4)
	b.out = &next
}

// grow reserves capacity for n more bytes in the last part, so that appending does not copy it
// repeatedly.
func (b *body) grow(n int) { *b.out = slices.Grow(*b.out, n) }

// cut removes all bytes of the last part after the first n.
func (b *body) cut(n int) { *b.out = append([]byte(nil), (*b.out)[:n]...) }

// written releases the memory of the part with index i, which was written.
func (b *body) written(i int) {
	less := min(cap(b.full[i]), b.held)
	b.full[i] = nil
	b.held -= less
	b.memory.answer(-less)
}

// free releases the body and its memory.
func (b *body) free() {
	b.memory.answer(-b.held)
	free(b.out)
	*b = body{}
}
