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

// budget counts the memory that large requests and answers use at present, and limits it to most
// bytes.
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

// newBudget returns a budget of most bytes, from which the numbers of units of work, of rows and of
// claims follow. It allocates no memory for them.
func newBudget(most int64) *budget {
	executed := max(maxUnits, most/workShare/workUnit)
	return &budget{
		most: most, lists: newWork(executed), singles: newWork(executed), pages: newWork(most / pageShare / jobs.MaxData),
		mostClaims: min(max(most/batchShare/jobs.MaxData, mostBatch), jobs.MaxTake),
	}
}

// request reserves delta bytes for a large request, or releases them if delta is negative. Returns
// false, and reserves nothing, if they are not available.
func (m *budget) request(delta int) bool { return add(&m.used, delta, m.most) }

// answer reserves delta bytes for a large answer, or releases them if delta is negative. Returns
// false, and reserves nothing, if they are not available. Answers may use half of the memory, so
// that clients that do not read cannot prevent others from sending.
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

// add adds delta to n and returns true. If delta is positive and the sum would exceed most, it adds
// nothing and returns false.
func add(n *atomic.Int64, delta int, most int64) bool {
	if sum := n.Add(int64(delta)); delta > 0 && sum > most {
		n.Add(-int64(delta))
		return false
	}
	return true
}

// claim reserves room for claiming up to n jobs of any size, and returns the number of jobs that
// have room. It does not wait. The number is at least 1, even if no room is left, since GetJob
// reserves none. leave releases the room; call it once.
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

// newWork returns a limit of n units of work, at least one, all free.
func newWork(n int64) work {
	return work{units: make(chan struct{}, max(n, 1)), gate: make(chan struct{}, 1)}
}

// some blocks until one unit is free. It reserves that unit, and more up to n if they are free, and
// returns their number. leave releases all of them; call it once. Returns the error of ctx, and
// reserves nothing, if ctx ends first.
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

// enter reserves the units of work for a request of this many bytes: one for each workUnit, at most
// maxUnits. It blocks until they are free, in the order of arrival. Up to workUnit bytes need none.
// leave releases them; call it once. Returns the error of ctx, and reserves nothing, if ctx ends
// first.
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

// length returns the length of the body in bytes, parts that were written included.
func (b *body) length() int { return b.size + len(*b.out) }

// count reserves memory for the capacity that the body has at present, apart from the first
// freeBuffer bytes. Call it after each append. Returns false if the memory is not available;
// earlier reservations stay.
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

// startPart begins another part if the last one has at least partSize bytes. It reserves no memory:
// count does.
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

// cut keeps only the first n bytes of the last part, in a new buffer.
func (b *body) cut(n int) { *b.out = append([]byte(nil), (*b.out)[:n]...) }

// written drops the part with index i, which was written, and releases its memory.
func (b *body) written(i int) {
	less := min(cap(b.full[i]), b.held)
	b.full[i] = nil
	b.held -= less
	b.memory.answer(-less)
}

// free releases the reserved memory and returns the last buffer to the pool, unless it is larger
// than keptBuffer. The body must not be used afterwards.
func (b *body) free() {
	b.memory.answer(-b.held)
	free(b.out)
	*b = body{}
}
